//! Level 2: the call list partitioned into stages, with the costs and memory of each stage's F, I and W.
//!
//! ```text
//! staged @llama {
//!   stage 0 rank 0: @embed, @layer[0..2] f=0.0012 i=0.0011 w=0.001 saved=73728 saved_for_w=8192 state=1048576
//!   stage 1 rank 1: @layer[2..4], @head  f=0.0014 i=0.0013 w=0.001 saved=90112 saved_for_w=8192 state=1048576
//! }
//! ```
//!
//! `rank 0+3`: two ranks hold the stage, each with its own copy of the parameters; the first half of the micro-batches runs
//! on rank 0, the second on rank 3.

use std::ops::Range;

/// A range of instances of one call on a stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StagePart {
    /// The index of the call in the model.
    pub call: usize,
    /// The range of its instances, from 0.
    pub instances: Range<u32>,
}

/// Cost of a stage per micro-batch on one device, and its memory.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct StageCost {
    /// Seconds of the forward.
    pub f: f64,
    /// Seconds of the input gradient.
    pub i: f64,
    /// Seconds of the weight gradient.
    pub w: f64,
    /// Saved activations, in bytes: from F until I has run, or until W if only W reads them.
    pub saved: u64,
    /// The bytes of `saved`, and of values that I adds, that are live from I until W has run.
    pub saved_for_w: u64,
    /// Bytes of parameters, gradients and optimizer state.
    pub state: u64,
}

/// An interval of the call list.
#[derive(Clone, PartialEq, Debug)]
pub struct Stage {
    /// The pipeline ranks that hold it: one, or those of its copies. The first updates its parameters.
    pub ranks: Vec<u32>,
    /// Its calls in order.
    pub parts: Vec<StagePart>,
    /// Its costs.
    pub cost: StageCost,
}

impl Stage {
    /// The rank that runs a micro-batch, given the number of micro-batches of a step. Each rank runs a contiguous range of
    /// equal length; that of the last rank may be shorter.
    pub fn rank(&self, microbatch: u32, microbatches: u32) -> u32 {
        let run = microbatches.div_ceil(self.ranks.len() as u32).max(1);
        self.ranks[((microbatch / run) as usize).min(self.ranks.len() - 1)]
    }
}

/// The stages in order.
#[derive(Clone, PartialEq, Debug)]
pub struct Staged {
    /// The model's name.
    pub name: String,
    /// The stages; stage `s` sends to the stages that use its values.
    pub stages: Vec<Stage>,
}
