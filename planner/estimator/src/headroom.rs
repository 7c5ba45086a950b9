//! Memory budget of a configuration: the share of a device's memory that leaves a chance to fit, or a fixed margin.

use super::model_plans::ModelTraits;
use super::request::EstimateRequest;
use cost::{Job, MemoryBudget, Regime, Stack};
use ir::options::ParallelConfig;

/// Sizes of configurations that their memory budget depends on; `None` if open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BudgetSizes {
    /// Number of devices.
    pub devices: Option<u64>,
    /// Sequences of a micro-batch.
    pub mbs: Option<u64>,
    /// Tensor-parallel ranks.
    pub tp: Option<u64>,
    /// Pipeline ranks.
    pub pp: Option<u64>,
    /// Context-parallel ranks.
    pub cp: Option<u64>,
    /// Ranks that hold different experts.
    pub ep: Option<u64>,
}

impl BudgetSizes {
    /// The sizes of a configuration.
    pub fn of(parallel: &ParallelConfig) -> BudgetSizes {
        let ParallelConfig { mbs, tp, pp, cp, ep, .. } = *parallel;
        let [devices, mbs, tp, pp, cp, ep] = [parallel.devices(), mbs, tp, pp, cp, ep].map(Some);
        BudgetSizes { devices, mbs, tp, pp, cp, ep }
    }
}

/// Memory budgets of the configurations of a request.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Headroom {
    rule: Rule,
    /// Parameters of the model.
    parameters: f64,
    /// Tokens of a sequence.
    seq: f64,
}

#[derive(Clone, PartialEq, Debug)]
enum Rule {
    /// A share of the memory stays free.
    Margin(f64),
    /// The chance to run out of memory is limited.
    Chance(Box<MemoryBudget>),
}

impl Headroom {
    /// The budgets of a request on a device of this name.
    pub(super) fn of(request: &EstimateRequest, stack: &Stack, device: &str, traits: ModelTraits) -> Headroom {
        let chance = 1.0 - request.headroom / 100.0;
        let kinds = kinds(request, device, traits.has_experts);
        let rule = match request.memory_margin {
            Some(margin) => Rule::Margin(margin),
            None => Rule::Chance(Box::new(stack.residual.memory_budget(&kinds, chance))),
        };
        Headroom { rule, parameters: traits.parameters as f64, seq: request.seq as f64 }
    }

    /// The budget as a share of a device's memory: of all configurations with these sizes, the largest.
    pub(super) fn share(&self, sizes: BudgetSizes) -> f64 {
        let BudgetSizes { devices, mbs, tp, pp, cp, ep } = sizes;
        let [devices, mbs, tp, pp, cp, ep] = [devices, mbs, tp, pp, cp, ep].map(|size| size.map(|size| size as f64));
        match &self.rule {
            Rule::Margin(margin) => 1.0 - margin,
            Rule::Chance(budget) => budget.share([Some(self.parameters), devices, Some(self.seq), mbs, tp, pp, cp, ep]),
        }
    }
}

/// Properties of a request that its errors depend on.
pub(super) fn job(
    request: &EstimateRequest,
    parallel: &ParallelConfig,
    device: &str,
    parameters: u64,
    has_experts: bool,
    regime: Regime,
) -> Job {
    let ParallelConfig { mbs, tp, pp, cp, ep, .. } = *parallel;
    let sizes = [parameters, parallel.devices(), request.seq, mbs, tp, pp, cp, ep];
    Job { kinds: kinds(request, device, has_experts), sizes: sizes.map(|size| size as f64), regime }
}

fn kinds(request: &EstimateRequest, device: &str, has_experts: bool) -> [String; 3] {
    [device, &request.precision, if has_experts { "experts" } else { "dense" }].map(String::from)
}
