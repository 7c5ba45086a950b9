//! Costs of a planned model and a predicted step. Plain data that crosses the layers of the workspace.

use serde::{Deserialize, Serialize};

/// The costs of a model on a mesh, as stage partitioning, scheduling and prediction need them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ModelCosts {
    /// Micro-batches of a step.
    pub microbatches: u32,
    /// The block instances in the order of the model, grouped by call.
    pub calls: Vec<CallCosts>,
    /// Each distinct block once.
    pub blocks: Vec<BlockCosts>,
    /// Parameters that several block instances bind.
    pub shared: Vec<SharedCosts>,
    /// Seconds of the step graph: the gradient norm and the clip factor.
    pub norm: f64,
    /// The memory budget of a rank, in bytes; `None`: no limit.
    pub limit: Option<u64>,
    /// The number of sequence slices per block instance; slices of one instance are consecutive. 0 if sequences are not
    /// sliced.
    #[serde(default)]
    pub slices: u32,
}

/// A call of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallCosts {
    /// The index of its block.
    pub block: usize,
    /// The number of instances.
    pub instances: u32,
}

/// Seconds of a section on one rank, without overlap: the section takes the sum.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SectionSeconds {
    /// Seconds of kernels.
    pub compute: f64,
    /// Seconds of collectives.
    pub collectives: f64,
}

impl SectionSeconds {
    /// The sum, in seconds.
    pub fn total(&self) -> f64 {
        self.compute + self.collectives
    }
}

/// Model states: bytes that live from step to step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ModelStates {
    /// Parameters.
    pub parameters: u64,
    /// Their gradients.
    pub gradients: u64,
    /// Their optimizer states, on the rank that updates them only.
    pub states: u64,
}

impl ModelStates {
    /// The sum, in bytes.
    pub fn total(&self) -> u64 {
        self.parameters + self.gradients + self.states
    }
}

/// Cost of one block instance on one rank, per micro-batch unless a field states otherwise.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BlockCosts {
    /// Its name.
    pub name: String,
    /// The forward.
    pub f: SectionSeconds,
    /// The input gradient.
    pub i: SectionSeconds,
    /// The weight gradient.
    pub w: SectionSeconds,
    /// Seconds once a step to gather parameters from the ranks that updated shards of them.
    pub gather: f64,
    /// Seconds once a step to reduce gradients.
    pub reduce: f64,
    /// Seconds once a step for the rest of the parameter update.
    pub update: f64,
    /// Saved activations, in bytes: from F until I has run, or until W if only W reads them.
    pub saved: u64,
    /// The bytes of `saved`, and of values that I adds, that are live from I until W has run.
    pub saved_for_w: u64,
    /// Peak bytes of inner values, over its sections.
    pub transient: u64,
    /// Seconds once a step to gather the parameters that stay gathered in it.
    #[serde(default)]
    pub gather_once: f64,
    /// Bytes of these.
    #[serde(default)]
    pub gathered: u64,
    /// Model states of the parameters that no other instance binds.
    pub model_states: ModelStates,
    /// Seconds once a step in which two pipeline ranks with copies of `model_states` sum its gradients and one sends the other the
    /// updated parameters.
    pub copy: f64,
    /// Bytes that it passes to the next block.
    pub output: u64,
    /// Seconds to send these to another pipeline rank.
    pub hop: f64,
}

/// Parameters that several block instances bind: each of their ranks has one copy of them and of their gradients.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SharedCosts {
    /// Their model states.
    pub model_states: ModelStates,
    /// Seconds once a step in which two pipeline ranks sum the gradients and one sends the other the updated parameters.
    pub copy: f64,
    /// The block instances that bind them, counted over all calls and their instances.
    pub runs: Vec<usize>,
    /// The block instance that updates them.
    pub updated_by: usize,
}

impl ModelCosts {
    /// The number of slices per instance.
    pub fn run_slices(&self) -> usize {
        self.slices.max(1) as usize
    }

    /// The cost of each block instance, in the order of the model.
    pub fn runs(&self) -> impl Iterator<Item = &BlockCosts> {
        self.calls.iter().flat_map(|call| (0..call.instances).map(|_| &self.blocks[call.block]))
    }
}

/// A predicted step of a parallel configuration.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PredictedStep {
    /// Step time in seconds.
    pub seconds: f64,
    /// Peak bytes of each pipeline rank.
    pub bytes: Vec<u64>,
    /// The first block instance of each stage.
    pub stage_starts: Vec<usize>,
    /// The breakdown of its time, and the binding constraints.
    pub why: String,
}
