//! Numbers of a job and of its configurations that the rules of a stack name.

use cost::{Refused, RuleName, RuleNumbers, Stack};
use ir::config_key::ConfigKey;
use ir::options::{CpKind, ParallelConfig, Recompute};
use scheduler::schedules;

/// Numbers of a job; `None` if unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobNumbers {
    /// Tokens of a sequence.
    pub seq: Option<u64>,
    /// Sequences of a step.
    pub global_batch: Option<u64>,
    /// Numbers of the model, and of the job, that no configuration changes.
    pub fixed: RuleNumbers,
}

impl JobNumbers {
    /// Numbers of the job under a configuration.
    pub fn under(&self, parallel: &ParallelConfig) -> RuleNumbers {
        self.known_under(parallel, |_| true)
    }

    /// Numbers of the names that `is_known` accepts; the others are not computed.
    pub fn known_under(&self, parallel: &ParallelConfig, is_known: impl Fn(RuleName) -> bool) -> RuleNumbers {
        RuleNumbers::of(|name| if is_known(name) { self.number(name, parallel) } else { None })
    }

    fn number(&self, name: RuleName, parallel: &ParallelConfig) -> Option<u64> {
        let ParallelConfig {
            dp, tp, pp, cp, ep, etp, cp_kind, sp, zero, shard, mbs, offload, offload_optimizer, ..
        } = *parallel;
        let is = |truth: bool| Some(u64::from(truth));
        match name {
            RuleName::Dp => Some(dp),
            RuleName::Tp => Some(tp),
            RuleName::Pp => Some(pp),
            RuleName::Cp => Some(cp),
            RuleName::Ep => Some(ep),
            RuleName::Etp => Some(etp),
            RuleName::Sp => is(sp),
            RuleName::Ring => is(cp > 1 && cp_kind == CpKind::Ring),
            RuleName::Ulysses => is(cp > 1 && cp_kind == CpKind::Ulysses),
            RuleName::Mbs => Some(mbs),
            RuleName::Microbatches => self.global_batch?.checked_div(dp.saturating_mul(mbs)),
            RuleName::Vp => chunks(parallel),
            RuleName::Slices => slices(parallel),
            RuleName::Boundaries => is(!parallel.stages.is_empty()),
            RuleName::Zero => Some(u64::from(zero)),
            RuleName::Groups => is(zero > 0 && shard.is_some_and(|shard| shard < dp * cp)),
            RuleName::Gather => is(parallel.gathers_once()),
            RuleName::Offload => is(!offload.is_none()),
            RuleName::OffloadOptimizer => is(offload_optimizer),
            RuleName::Recompute => Some(match &parallel.recompute {
                Recompute::None => 0,
                Recompute::Selective(_) | Recompute::Auto => 1,
                Recompute::Full(_) => 2,
            }),
            RuleName::Group => Some(parallel.group.map_or(pp, u64::from)),
            RuleName::Instances => match (zero, shard) {
                (1.., Some(shard)) => (dp * cp).checked_div(shard),
                _ => Some(1),
            },
            RuleName::PpOuter => is(parallel.rank_order.first().is_some_and(|axis| axis == "pp")),
            RuleName::RecomputesLayernorm => is(parallel.recompute.has_module("layernorm")),
            RuleName::RecomputesMoeAct => is(parallel.recompute.has_module("moe_act")),
            RuleName::RecomputesMlaUpProj => is(parallel.recompute.has_module("mla_up_proj")),
            RuleName::RecomputesMoe => is(parallel.recompute.has_module("moe")),
            RuleName::Seq => self.seq,
            RuleName::Layers
            | RuleName::KvHeads
            | RuleName::Experts
            | RuleName::Heads
            | RuleName::Mla
            | RuleName::ExpertBias
            | RuleName::DelayedScaling
            | RuleName::NarrowStates
            | RuleName::Adam
            | RuleName::Documents
            | RuleName::Tied
            | RuleName::FirstDense => self.fixed.get(name),
        }
    }
}

/// Properties of a stack that do not hold in a configuration.
pub fn refused(parallel: &ParallelConfig, stack: &Stack) -> Refused {
    stack.conditions.refused(&JobNumbers::default().under(parallel))
}

/// Properties of a stack that do not hold in a configuration, whatever its schedule is.
pub(super) fn refused_by_all_schedules(parallel: &ParallelConfig, stack: &Stack) -> Refused {
    let decided = JobNumbers::default().known_under(parallel, |name| !name.keys().contains(&ConfigKey::Schedule));
    stack.conditions.refused(&decided)
}

/// Slices of a sequence.
fn slices(parallel: &ParallelConfig) -> Option<u64> {
    let kind = schedules::find(&parallel.schedule).ok()?;
    Some(u64::from(kind.slices(parallel.slices)))
}

/// Stages of a pipeline rank.
fn chunks(parallel: &ParallelConfig) -> Option<u64> {
    if parallel.pp == 1 {
        return Some(1);
    }
    let kind = schedules::find(&parallel.schedule).ok()?;
    let pipeline = kind.pipeline(u32::try_from(parallel.pp).ok()?, parallel.vp, 1).ok()?;
    Some(u64::from(pipeline.chunks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EstimateRequest, Estimator};
    use compiler::parallel::parse_any;

    #[test]
    fn properties_hold_by_their_conditions() {
        let stack = Stack::find("megatron-core-2026").unwrap();
        for (parallel, exchanges, graphs) in [
            ("dp=8,ep=8", false, false),
            ("dp=8,ep=8,pp=2", true, false),
            ("dp=8,ep=8,pp=2,schedule=interleaved-1f1b,vp=2", false, false),
            ("dp=8,ep=8,recompute=full:2", true, true),
            ("dp=8,ep=8,recompute=selective:moe_act+moe", true, true),
            ("dp=8,ep=8,offload=all", false, true),
            ("dp=8,ep=8,zero=3", false, true),
            ("dp=8,ep=8,pp=2,zero=3", true, false),
        ] {
            let parallel = parse_any(parallel).unwrap();
            assert_eq!(refused(&parallel, &stack), Refused { exchanges, graphs }, "{parallel:?}");
        }
        let open = parse_any("dp=8,ep=8,pp=2").unwrap();
        assert_eq!(refused_by_all_schedules(&open, &stack), Refused::default());
    }

    /// A property that a configuration excludes is as if the stack had none.
    #[test]
    fn an_excluded_property_is_absent() {
        let estimator = Estimator::new();
        let predicted = |stack: &str, parallel: &str| {
            let request = EstimateRequest {
                model: "qwen3-30b-a3b".into(),
                cluster: "h100".into(),
                stack: format!("megatron-core-2026{stack}"),
                seq: 4096,
                global_batch: 256,
                parallel: parallel.into(),
                ..EstimateRequest::default()
            };
            estimator.estimate(&request).unwrap().predicted
        };
        let without = "+hides=tp|dp|cp|p2p|update";
        for (parallel, lacking) in [
            ("dp=8,ep=8,pp=2,zero=1", without.to_string()),
            ("dp=16,ep=8,zero=1,recompute=full", format!("{without}+launch.graphs=none")),
            ("dp=16,ep=8,zero=1,recompute=full:5", format!("{without}+launch.graphs=none")),
        ] {
            assert_eq!(predicted("", parallel), predicted(&lacking, parallel), "{parallel}");
        }
        let interleaved = "dp=8,ep=8,pp=2,zero=1,schedule=interleaved-1f1b,vp=2";
        assert!(predicted("", interleaved).step_time_s < predicted(without, interleaved).step_time_s);
    }
}
