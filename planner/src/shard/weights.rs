//! How often each block runs in a step, and how much of what it keeps a rank holds.

use ir::graph::Model;
use ir::ids::BlockId;
use ir::recompute::variants_of;

/// The runs of blocks on one rank.
pub(super) struct Weights {
    runs: Vec<(BlockId, u64)>,
    stages: u64,
    microbatches: u64,
}

impl Weights {
    /// The calls of a model on a mesh, in steps of so many micro-batches.
    pub(super) fn of(model: &Model, microbatches: u32) -> Weights {
        let stages = model.mesh.pipeline().map_or(1, |axis| model.mesh.axes[axis].size);
        let runs = model.blocks.keys().map(|id| (id, runs(model, id, stages)));
        Weights { runs: runs.collect(), stages, microbatches: u64::from(microbatches.max(1)) }
    }

    fn of_block(&self, block: BlockId) -> u64 {
        self.runs.iter().find(|(id, _)| *id == block).map_or(1, |(_, runs)| *runs)
    }

    /// Runs of a block's calls, all stages together: what is done once a step is done so often.
    pub(super) fn runs(&self, block: BlockId) -> f64 {
        self.of_block(block) as f64
    }

    /// The same for all micro-batches of a step.
    pub(super) fn step(&self, block: BlockId) -> f64 {
        self.runs(block) * self.microbatches as f64
    }

    /// How many of so many instances one stage has.
    pub(super) fn held(&self, instances: u64) -> u64 {
        instances.div_ceil(self.stages)
    }

    /// How many runs' kept values a rank holds at most: those of its blocks, for the micro-batches that are under way in the
    /// first of the stages.
    pub(super) fn kept(&self, block: BlockId) -> u64 {
        self.held(self.of_block(block)) * self.stages.min(self.microbatches)
    }
}

/// The runs of a block. Of a layer with variants each stage computes as many again as are called so before there are stages.
fn runs(model: &Model, id: BlockId, stages: u64) -> u64 {
    let count = |block: BlockId| -> u64 {
        let calls = model.calls.iter().filter(|call| call.block == block);
        calls.map(|call| u64::from(call.instances())).sum()
    };
    let Some([kept, again]) = variants_of(model, id) else { return count(id).max(1) };
    let all = count(kept) + count(again);
    let many = all.min(count(again).saturating_mul(stages));
    if id == again { many.max(1) } else { (all - many).max(1) }
}
