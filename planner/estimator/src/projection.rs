//! Projections of a request and of a configuration: the fields that a part of a prediction depends on. They are the keys of
//! queries, and all that a query sees. Each names every field of what it is made of, so a new option does not compile until
//! each projection takes it or drops it.

use super::error::Error;
use super::rank_waits::OpenOrders;
use super::recipe;
use super::request::EstimateRequest;
use cost::{BlockOptions, Reach, Recipe, Refused, Spread, Stack, Supports};
use ir::options::{CpKind, Gather, Offload, ParallelConfig, Recompute};
use ir::types::DType;
use scheduler::placement::Placement;
use std::sync::Arc;

/// The fields of a request that costs depend on, except its configuration.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct CostContext {
    pub(super) model: String,
    pub(super) cluster: String,
    pub(super) stack: String,
    pub(super) seq: u64,
    pub(super) precision: String,
    grad_dtype: Option<String>,
    master: Option<String>,
    optimizer: String,
    pub(super) lengths: Vec<u64>,
    beyond_stack: bool,
}

impl CostContext {
    /// The fields of a request.
    pub(super) fn of(request: &EstimateRequest) -> CostContext {
        let EstimateRequest {
            model,
            cluster,
            stack,
            gpus: _,
            seq,
            global_batch: _,
            precision,
            grad_dtype,
            master,
            optimizer,
            parallel: _,
            lengths,
            headroom: _,
            memory_margin: _,
            beyond_stack,
        } = request.clone();
        CostContext { model, cluster, stack, seq, precision, grad_dtype, master, optimizer, lengths, beyond_stack }
    }

    /// The stack as the request allows it: with `beyond_stack` it supports everything.
    pub(super) fn allowed(&self, stack: Arc<Stack>) -> Arc<Stack> {
        if self.beyond_stack {
            Arc::new(Stack { supports: Supports::default(), ..Stack::clone(&stack) })
        } else {
            stack
        }
    }

    /// The number formats on a stack.
    ///
    /// # Errors
    /// A name is not known.
    pub(super) fn recipe(&self, stack: &Stack) -> Result<Recipe, Error> {
        let (grad, master) = (self.grad_dtype.as_deref(), self.master.as_deref());
        recipe::recipe(&self.precision, grad, master, &self.optimizer, stack)
    }

    /// Pairs of query and key under the documents' masks, relative to one causal document; both as far as queries reach.
    pub(super) fn attention_share(&self, reach: Reach) -> f64 {
        let pairs = |n: f64| reach.causal_pairs(n);
        let (seq, lengths) = (self.seq as f64, || self.lengths.iter().map(|&length| length as f64));
        let tokens: f64 = lengths().sum();
        if tokens == 0.0 { 1.0 } else { lengths().map(pairs).sum::<f64>() / (tokens / seq * pairs(seq)) }
    }
}

/// The fields that the plan of a block depends on: the degrees of the ranks that compute a block together, and their order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PlanConfig {
    /// Data-parallel ranks that hold different experts.
    dp: u64,
    tp: u64,
    cp: u64,
    ep: u64,
    etp: u64,
    mbs: u64,
    sp: bool,
    rank_order: Arc<[String]>,
}

impl PlanConfig {
    /// Configuration with these fields, and defaults otherwise.
    pub(super) fn parallel(&self) -> ParallelConfig {
        let PlanConfig { dp, tp, cp, ep, etp, mbs, sp, ref rank_order } = *self;
        ParallelConfig { dp, tp, cp, ep, etp, mbs, sp, rank_order: Arc::clone(rank_order), ..ParallelConfig::default() }
    }
}

/// Key of a plan: configuration, tokens per sequence, and the element type of the model.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PlanKey {
    pub(super) config: PlanConfig,
    pub(super) seq: u64,
    pub(super) dtype: DType,
}

/// The fields that the cost of a block depends on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct BlockConfig {
    pub(super) plan: PlanConfig,
    pub(super) options: BlockOptions,
    /// Cores of each device, if devices share cores.
    pub(super) cores_each: u64,
}

impl BlockConfig {
    /// The fields of a configuration on devices of `cores_each` cores, without the properties of the stack that it excludes.
    ///
    /// # Errors
    /// The degrees of the experts do not divide those of the other blocks.
    pub(super) fn of(parallel: &ParallelConfig, cores_each: u64, refused: Refused) -> Result<BlockConfig, Error> {
        let ParallelConfig {
            dp: _,
            tp,
            pp: _,
            cp,
            ep,
            etp,
            mbs,
            sp,
            ref rank_order,
            // `BlockOptions`, and the distances between ranks, see the whole configuration.
            cp_kind: _,
            recompute: _,
            offload: _,
            tp_overlap: _,
            // These are of whole stages and of a step.
            zero: _,
            shard: _,
            gather: _,
            offload_optimizer: _,
            dp_overlap: _,
            schedule: _,
            vp: _,
            group: _,
            slices: _,
            stages: _,
        } = *parallel;
        let dp = if ep * etp == 1 { 1 } else { parallel.dp_together()? };
        let options = BlockOptions { refused, ..BlockOptions::of(parallel, dp) };
        let plan = PlanConfig { dp, tp, cp, ep, etp, mbs, sp, rank_order: Arc::clone(rank_order) };
        Ok(BlockConfig { plan, options, cores_each })
    }

    /// The same with whole layers recomputed.
    pub(super) fn recomputing_layers(&self) -> BlockConfig {
        self.with(Recompute::Full(None), self.options.offload)
    }

    /// The same without recomputation.
    pub(super) fn recomputing_nothing(&self) -> BlockConfig {
        self.with(Recompute::None, self.options.offload)
    }

    /// The same with all activations saved on the device, and all properties of the stack: neither moves a layer.
    pub(super) fn keeping_all(&self) -> BlockConfig {
        let kept = self.with(Recompute::None, false);
        BlockConfig { options: BlockOptions { refused: Refused::default(), ..kept.options }, ..kept }
    }

    /// The same with all saved activations in host memory.
    pub(super) fn offloading(&self) -> BlockConfig {
        self.with(self.options.recompute.clone(), true)
    }

    fn with(&self, recompute: Recompute, offload: bool) -> BlockConfig {
        BlockConfig { options: BlockOptions { recompute, offload, ..self.options.clone() }, ..self.clone() }
    }

    /// The same for blocks without experts: each data-parallel rank computes by itself.
    pub(super) fn without_experts(&self) -> BlockConfig {
        let plan = PlanConfig { dp: 1, ep: 1, etp: 1, ..self.plan.clone() };
        let has_dp_inside =
            |axis: &str| plan.rank_order.iter().skip_while(|name| *name != axis).skip(1).any(|name| name == "dp");
        let further = |axis: &str, spread: u64| if has_dp_inside(axis) { spread * self.plan.dp } else { spread };
        let Spread { tp, cp, dp } = self.options.spread;
        let spread = Spread { tp: further("tp", tp), cp: further("cp", cp), dp };
        BlockConfig { plan, options: BlockOptions { spread, ..self.options.clone() }, ..self.clone() }
    }

    /// Configuration with these fields, and defaults otherwise.
    pub(super) fn parallel(&self) -> ParallelConfig {
        let BlockOptions { tp: _, sp: _, cp_kind, ref recompute, offload, tp_overlap, refused: _, spread: _ } =
            self.options;
        let recompute = recompute.clone();
        let offload = if offload { Offload::All(None) } else { Offload::None };
        ParallelConfig { cp_kind, recompute, offload, tp_overlap, ..self.plan.parallel() }
    }
}

/// The fields that the partition of a model into equally long stages depends on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PartitionConfig {
    /// Blocks that save all: what is recomputed moves no layer.
    pub(super) blocks: BlockConfig,
    pub(super) placement: Placement,
    pub(super) ranks: u32,
    /// Stages on each rank.
    pub(super) chunks: u32,
}

/// The fields that the order and the times of a step's actions depend on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PipelineConfig {
    pub(super) parallel: ParallelConfig,
    pub(super) microbatches: u32,
    pub(super) cores_each: u64,
}

impl PipelineConfig {
    /// The fields of a configuration whose micro-batches run under a ZeRO stage. Below stage 2 no micro-batch waits for
    /// data-parallel ranks, so the fields of ZeRO are left out.
    pub(super) fn of(parallel: &ParallelConfig, zero: u8, microbatches: u32, cores_each: u64) -> PipelineConfig {
        let parallel = parallel.clone();
        let parallel = if zero < 2 {
            ParallelConfig { zero: 0, shard: None, gather: Gather::Use, dp_overlap: None, ..parallel }
        } else {
            parallel
        };
        PipelineConfig { parallel, microbatches, cores_each }
    }
}

/// The fields that the lower bound over all pipelines depends on: all but the order of a pipeline's actions and its stages.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct AverageRankConfig {
    dp: u64,
    tp: u64,
    pp: u64,
    cp: u64,
    ep: u64,
    etp: u64,
    mbs: u64,
    /// ZeRO stage under which micro-batches run.
    zero: u8,
    shard: Option<u64>,
    gather: Gather,
    cp_kind: CpKind,
    sp: bool,
    recompute: Recompute,
    offload: Offload,
    offload_optimizer: bool,
    tp_overlap: Option<bool>,
    dp_overlap: Option<bool>,
    rank_order: Arc<[String]>,
    pub(super) microbatches: u32,
    pub(super) cores_each: u64,
    pub(super) orders: OpenOrders,
    /// Bits of the memory budget in bytes, if there is one.
    budget: Option<u64>,
}

/// Values that follow from a configuration and a request.
#[derive(Clone, Copy)]
pub(super) struct StepContext {
    /// ZeRO stage under which micro-batches run.
    pub(super) zero: u8,
    pub(super) microbatches: u32,
    pub(super) cores_each: u64,
}

impl AverageRankConfig {
    /// The fields of a configuration.
    pub(super) fn of(
        parallel: &ParallelConfig,
        context: StepContext,
        orders: OpenOrders,
        budget: Option<f64>,
    ) -> AverageRankConfig {
        let ParallelConfig {
            dp,
            tp,
            pp,
            cp,
            ep,
            etp,
            mbs,
            zero: _,
            shard,
            gather,
            cp_kind,
            sp,
            ref recompute,
            offload,
            offload_optimizer,
            tp_overlap,
            dp_overlap,
            ref rank_order,
            schedule: _,
            vp: _,
            group: _,
            slices: _,
            stages: _,
        } = *parallel;
        let StepContext { zero, microbatches, cores_each } = context;
        AverageRankConfig {
            dp,
            tp,
            pp,
            cp,
            ep,
            etp,
            mbs,
            zero,
            shard,
            gather,
            cp_kind,
            sp,
            recompute: recompute.clone(),
            offload,
            offload_optimizer,
            tp_overlap,
            dp_overlap,
            rank_order: Arc::clone(rank_order),
            microbatches,
            cores_each,
            orders,
            budget: budget.map(f64::to_bits),
        }
    }

    /// Memory budget of a device in bytes, if there is one.
    pub(super) fn budget(&self) -> Option<f64> {
        self.budget.map(f64::from_bits)
    }

    /// Configuration with these fields, and defaults otherwise.
    pub(super) fn parallel(&self) -> ParallelConfig {
        let AverageRankConfig { dp, tp, pp, cp, ep, etp, mbs, zero, shard, gather, cp_kind, .. } = *self;
        let AverageRankConfig { sp, offload, offload_optimizer, tp_overlap, dp_overlap, ref rank_order, .. } = *self;
        ParallelConfig {
            dp,
            tp,
            pp,
            cp,
            ep,
            etp,
            mbs,
            zero,
            shard,
            gather,
            cp_kind,
            sp,
            recompute: self.recompute.clone(),
            offload,
            offload_optimizer,
            tp_overlap,
            dp_overlap,
            rank_order: Arc::clone(rank_order),
            ..ParallelConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Estimator, Evaluator};
    use compiler::parallel;

    /// With dp inside tp, neighbours on tp are further apart the more data-parallel ranks there are: on one node or on several.
    #[test]
    fn configurations_whose_ranks_are_spread_otherwise_share_no_costs() {
        let configs = ["dp=8,tp=2", "dp=2,tp=2,pp=4", "dp=2,cp=2,tp=2,pp=2", "dp=1,tp=2,pp=8"];
        let order = ",rank_order=cp,tp,dp,pp";
        let request = |parallel: &str, gpus| EstimateRequest {
            model: "gpt2".into(),
            cluster: "h100".into(),
            seq: 1024,
            global_batch: 16,
            gpus: Some(gpus),
            parallel: format!("{parallel}{order}"),
            ..EstimateRequest::default()
        };
        let requests = configs.map(|parallel| request(parallel, 16)).into_iter().chain([request("dp=2,tp=2", 4)]);
        let shared = Estimator::new();
        let evaluator = Evaluator::new(&shared, request("", 16), [16; 2]).unwrap();
        for request in requests {
            let seconds = |of: &Estimator| of.estimate(&request).unwrap().predicted.step_time_s;
            let alone = seconds(&Estimator::new());
            assert_eq!(seconds(&shared), alone, "{}", request.parallel);
            let parallel = parallel::parse(&request.parallel).unwrap();
            let costed = evaluator.cost(&parallel).unwrap().seconds;
            assert!((costed / alone - 1.0).abs() < 1e-9, "{}: {costed}, {alone}", request.parallel);
        }
    }

    /// Rank orders change how far the ranks of an axis lie apart. One database serves configurations of several orders.
    #[test]
    fn configurations_of_other_rank_orders_share_no_costs() {
        let request = |parallel: &str| EstimateRequest {
            model: "gpt2".into(),
            cluster: "h100".into(),
            seq: 1024,
            global_batch: 16,
            gpus: Some(16),
            parallel: parallel.to_string(),
            ..EstimateRequest::default()
        };
        let shared = Estimator::new();
        let evaluator = Evaluator::new(&shared, request(""), [16; 2]).unwrap();
        let mut all = Vec::new();
        for order in ["pp,dp,cp,tp", "pp,dp,tp,cp", "dp,tp,pp,cp"] {
            let text = format!("dp=1,cp=4,tp=4,rank_order={order}");
            let alone = Estimator::new().estimate(&request(&text)).unwrap().predicted.step_time_s;
            let costed = evaluator.cost(&parallel::parse(&text).unwrap()).unwrap().seconds;
            assert!((costed / alone - 1.0).abs() < 1e-9, "{text}: {costed}, {alone}");
            all.push(costed);
        }
        assert!(all[0] != all[1] && all[1] == all[2], "{all:?}");
    }

    #[test]
    fn documents_have_fewer_pairs_than_a_sequence() {
        let reaching = |reach: Reach, lengths: &[u64]| {
            let request = EstimateRequest { seq: 100, lengths: lengths.to_vec(), ..EstimateRequest::default() };
            CostContext::of(&request).attention_share(reach)
        };
        let within = |window: u64, lengths: &[u64]| reaching(Reach::Window(window), lengths);
        let share = |lengths: &[u64]| reaching(Reach::All, lengths);
        assert_eq!([share(&[]), share(&[100]), share(&[100; 3])], [1.0, 1.0, 1.0]);
        // Two halves: 2 x 50 x 51 of 100 x 101.
        assert!((share(&[50, 50]) - 5100.0 / 10100.0).abs() < 1e-12);
        assert!(share(&[10; 10]) < share(&[50, 50]));
        // Documents that are no longer than the window lose what is beyond them: 10 x 55 of 55 + 90 x 10.
        assert!((within(10, &[10; 10]) - 550.0 / 955.0).abs() < 1e-12);
        assert!(within(10, &[50, 50]) > 0.9);
        // Documents as long as chunks lose nothing, and others what is beyond them: of 2 x 55 pairs, 4 x 15.
        assert_eq!(reaching(Reach::Chunk(10), &[10; 10]), 1.0);
        assert!((reaching(Reach::Chunk(10), &[5; 20]) - 60.0 / 110.0).abs() < 1e-12);
    }
}
