//! What a planned model costs, as numbers alone, and what a step of it would take. Plain data that crosses the floors.

use serde::{Deserialize, Serialize};

/// All that stages, schedules and predictions need to know of a model on a mesh.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ModelCosts {
    /// Micro-batches of a step.
    pub microbatches: u32,
    /// The runs of blocks in the order of the model, those of a call together.
    pub calls: Vec<CallCosts>,
    /// Each distinct block once.
    pub blocks: Vec<BlockCosts>,
    /// Parameters that several runs bind.
    pub shared: Vec<SharedCosts>,
    /// Seconds of the step graph: the norm and what follows from it.
    pub norm: f64,
    /// The most bytes that a rank may hold; `None`: no limit.
    pub limit: Option<u64>,
    /// Slices of a sequence that are runs of their own; those of one run follow each other. 0 where sequences are whole.
    #[serde(default)]
    pub slices: u32,
}

/// A call of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallCosts {
    /// Its place among the blocks.
    pub block: usize,
    /// How often it runs.
    pub instances: u32,
}

/// Seconds of a section on one rank. Nothing is hidden behind anything: a rank takes the sum.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Lanes {
    /// Of kernels.
    pub compute: f64,
    /// Of layout changes.
    pub wire: f64,
}

impl Lanes {
    /// One after the other.
    pub fn total(&self) -> f64 {
        self.compute + self.wire
    }
}

/// Bytes that live from step to step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Held {
    /// Parameters.
    pub parameters: u64,
    /// Their gradients.
    pub gradients: u64,
    /// Their optimizer states, which only the rank has that updates them.
    pub states: u64,
}

impl Held {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.parameters + self.gradients + self.states
    }
}

/// What one run of a block costs on one rank: per micro-batch where it says nothing else.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BlockCosts {
    /// Its name.
    pub name: String,
    /// The forward.
    pub f: Lanes,
    /// The input gradient.
    pub i: Lanes,
    /// The weight gradient.
    pub w: Lanes,
    /// Seconds once a step in which parameters are gathered from the ranks that updated parts of them.
    pub gather: f64,
    /// Seconds once a step in which gradients are summed.
    pub reduce: f64,
    /// Seconds once a step of all else that updates parameters.
    pub update: f64,
    /// Bytes kept from F until I has run, or W where only W reads them.
    pub kept: u64,
    /// Of `kept` and what I adds, the bytes held from I until W has run.
    pub crossing: u64,
    /// The most bytes of inner values at once, in any of its sections.
    pub transient: u64,
    /// What its parameters hold that no other run binds.
    pub held: Held,
    /// Seconds once a step in which two pipeline ranks that both hold `held` sum its gradients and one gives the other its
    /// parameters.
    pub copy: f64,
    /// Bytes that it passes on to the next block.
    pub boundary: u64,
    /// Seconds in which these come to another pipeline rank.
    pub hop: f64,
}

/// Parameters that several runs bind: each of their ranks holds them, and their gradients, once.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SharedCosts {
    /// What they hold.
    pub held: Held,
    /// Seconds once a step in which two pipeline ranks sum their gradients and one gives the other the parameters.
    pub copy: f64,
    /// The runs that bind them, counted over all calls and their instances.
    pub runs: Vec<usize>,
    /// The run that updates them.
    pub updated_by: usize,
}

impl ModelCosts {
    /// The runs that are slices of one.
    pub fn run_slices(&self) -> usize {
        self.slices.max(1) as usize
    }

    /// What each run of a block costs, in the order of the model.
    pub fn runs(&self) -> impl Iterator<Item = &BlockCosts> {
        self.calls.iter().flat_map(|call| (0..call.instances).map(|_| &self.blocks[call.block]))
    }
}

/// What a step would take under a layout.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Seconds from its begin to its end.
    pub seconds: f64,
    /// Bytes of each pipeline rank when it holds most.
    pub bytes: Vec<u64>,
    /// The first run of each stage.
    pub cut: Vec<usize>,
    /// What its time goes to, and what binds.
    pub why: String,
}
