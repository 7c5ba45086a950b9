//! Cache keys: the fields that parts of a prediction depend on, so that configurations that agree in these fields share a
//! result.

use super::resize::together;
use compiler::error::Error;
use cost::{Machine, spread};
use ir::options::{CpKind, ParallelConfig, Recompute};
use ir::types::DType;

/// How far apart the ranks lie that work on a block together, of which so many are data-parallel.
pub(super) fn spreads(parallel: &ParallelConfig, together: u64) -> [u64; 3] {
    ["tp", "cp", "dp"].map(|axis| spread(parallel, axis, together))
}

/// What profiles depend on of what is computed again: they are the same however many layers are.
pub(super) fn of_profiles(recompute: &Recompute) -> Recompute {
    match recompute {
        Recompute::Full(_) => Recompute::Full(None),
        other => other.clone(),
    }
}

/// What a block sees of a configuration.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct BlockKey {
    degrees: [u64; 6],
    spread: [u64; 3],
    sp: bool,
    cp_kind: CpKind,
    offload: bool,
    tp_overlap: Option<bool>,
    recompute: Recompute,
    /// Of a device, which may have several cores.
    pub(super) rate: u64,
}

impl BlockKey {
    /// That of a configuration.
    ///
    /// # Errors
    /// Its experts cannot be shared out.
    pub(super) fn of(parallel: &ParallelConfig, machine: &Machine<'_>) -> Result<BlockKey, Error> {
        let ParallelConfig { tp, cp, ep, etp, mbs, sp, cp_kind, offload, tp_overlap, .. } = *parallel;
        let dp = if ep * etp == 1 { 1 } else { together(parallel)?.dp };
        let recompute = of_profiles(&parallel.recompute);
        let rate = machine.cluster.device.flops_f32.to_bits();
        let (degrees, spread) = ([dp, tp, cp, ep, etp, mbs], spreads(parallel, dp));
        Ok(BlockKey { degrees, spread, sp, cp_kind, offload, tp_overlap, recompute, rate })
    }

    /// The same where whole layers are computed again, if nothing is.
    pub(super) fn with_whole_layers(&self) -> Option<BlockKey> {
        let whole = || BlockKey { recompute: Recompute::Full(None), ..self.clone() };
        (self.recompute == Recompute::None).then(whole)
    }

    /// The same where all is kept on the device.
    pub(super) fn keeping_all(self) -> BlockKey {
        BlockKey { recompute: Recompute::None, offload: false, ..self }
    }
}

/// What the mean rank sees of a configuration: nothing of its pipeline's order, so that what is known of one serves all.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct MeanKey {
    degrees: [u64; 7],
    zero: u8,
    shard: Option<u64>,
    sp: bool,
    cp_kind: CpKind,
    offload: bool,
    overlaps: [Option<bool>; 2],
    recompute: Recompute,
    /// Into how many slices orders may cut a sequence.
    slices: u32,
}

impl MeanKey {
    /// That of a configuration whose micro-batches run under a stage of ZeRO, in orders that cut a sequence into at most so many slices.
    pub(super) fn of(parallel: &ParallelConfig, zero: u8, slices: u32) -> MeanKey {
        let ParallelConfig {
            dp, tp, pp, cp, ep, etp, mbs, shard, sp, cp_kind, offload, tp_overlap, dp_overlap, ..
        } = *parallel;
        let (degrees, overlaps) = ([dp, tp, pp, cp, ep, etp, mbs], [tp_overlap, dp_overlap]);
        MeanKey { degrees, zero, shard, sp, cp_kind, offload, overlaps, recompute: parallel.recompute.clone(), slices }
    }
}

/// What the plan of blocks depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct PlanKey {
    pub(super) model: String,
    /// The axes below pp, and nothing else.
    pub(super) parallel: ParallelConfig,
    pub(super) seq: u64,
    pub(super) half: bool,
}

impl PlanKey {
    /// The type that blocks are built in.
    pub(super) fn dtype(&self) -> DType {
        if self.half { DType::BF16 } else { DType::F32 }
    }
}

/// What blocks cost by.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct BlocksKey {
    pub(super) plan: PlanKey,
    /// The configuration as a block sees it.
    pub(super) parallel: ParallelConfig,
    /// How much further apart its ranks lie.
    pub(super) spread: [u64; 3],
    pub(super) cluster: String,
    /// Of a device, which may have several cores.
    pub(super) rate: u64,
    pub(super) stack: String,
    /// Formats and documents, as the request has them.
    pub(super) formats: [String; 4],
    pub(super) lengths: Vec<u64>,
}

/// Blocks, pipeline ranks, stages on each, schedule, and stages that are given.
pub(super) type CutKey = (BlocksKey, u64, Option<u32>, String, Vec<u32>);

/// What stages in their order depend on.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct FlowKey {
    pub(super) blocks: BlocksKey,
    /// The configuration as a pipeline sees it.
    pub(super) parallel: ParallelConfig,
    pub(super) microbatches: u32,
}

#[cfg(test)]
mod tests {
    use crate::{Desk, EstimateRequest, Estimator};
    use compiler::parallel;

    /// With dp inside tp, neighbours on tp are further apart the more data-parallel ranks there are: on one node or on several.
    #[test]
    fn configurations_whose_ranks_are_spread_otherwise_share_no_prices() {
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
        let desk = Desk::new(&shared, request("", 16), [16; 2]).unwrap();
        for request in requests {
            let seconds = |of: &Estimator| of.estimate(&request).unwrap().predicted.step_time_s;
            let alone = seconds(&Estimator::new());
            assert_eq!(seconds(&shared), alone, "{}", request.parallel);
            let parallel = parallel::parse(&request.parallel).unwrap();
            let priced = desk.price(&parallel).unwrap().seconds;
            assert!((priced / alone - 1.0).abs() < 1e-9, "{}: {priced}, {alone}", request.parallel);
        }
    }
}
