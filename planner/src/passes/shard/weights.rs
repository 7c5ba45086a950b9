//! Executions per step of each block, and the number of saved activations on a rank.

use ir::graph::Model;
use ir::ids::BlockId;
use transforms::recompute::variants_of;

/// Block executions on one rank.
pub(super) struct Weights {
    runs: Vec<(BlockId, u64)>,
    stages: u64,
    microbatches: u64,
}

impl Weights {
    /// Counts the calls of a model on a mesh, for steps of `microbatches` micro-batches.
    pub(super) fn of(model: &Model, microbatches: u32) -> Weights {
        let stages = model.mesh.pipeline().map_or(1, |axis| model.mesh.axes[axis].size);
        let runs = model.blocks.keys().map(|id| (id, runs(model, id, stages)));
        Weights { runs: runs.collect(), stages, microbatches: u64::from(microbatches.max(1)) }
    }

    fn of_block(&self, block: BlockId) -> u64 {
        self.runs.iter().find(|(id, _)| *id == block).map_or(1, |(_, runs)| *runs)
    }

    /// Executions of a block's calls in all stages; also the count of once-per-step work.
    pub(super) fn runs(&self, block: BlockId) -> f64 {
        self.of_block(block) as f64
    }

    /// Executions for all micro-batches of a step.
    pub(super) fn step(&self, block: BlockId) -> f64 {
        self.runs(block) * self.microbatches as f64
    }

    /// Number of instances on one stage.
    pub(super) fn held(&self, instances: u64) -> u64 {
        instances.div_ceil(self.stages)
    }

    /// Largest number of executions whose saved values a rank holds: its blocks, times the micro-batches in flight on
    /// the first stage.
    pub(super) fn kept(&self, block: BlockId) -> u64 {
        self.held(self.of_block(block)) * self.stages.min(self.microbatches)
    }
}

/// Number of times that calls execute a block.
fn instances(model: &Model, block: BlockId) -> u64 {
    let calls = model.calls.iter().filter(|call| call.block == block);
    calls.map(|call| u64::from(call.instances())).sum()
}

/// Executions of a block. For a layer with variants, each stage recomputes the number of calls that do so before stages
/// exist.
fn runs(model: &Model, id: BlockId, stages: u64) -> u64 {
    let Some([kept, again]) = variants_of(model, id) else { return instances(model, id).max(1) };
    let recomputed = instances(model, again);
    let all = instances(model, kept) + recomputed;
    let many = all.min(recomputed.saturating_mul(stages));
    if id == again { many.max(1) } else { (all - many).max(1) }
}
