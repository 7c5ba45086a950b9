//! The answer: `meshwright.estimate/2`.

use super::request::EstimateRequest;
use serde::{Deserialize, Serialize};

/// Version of the form of an estimate.
pub const SCHEMA: &str = "meshwright.estimate/2";

/// A predicted step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EstimateReport {
    /// `meshwright.estimate/2`.
    pub schema: String,
    /// The version of this program.
    pub tool_version: String,
    /// `ok`.
    pub status: String,
    /// The request.
    pub inputs: EstimateRequest,
    /// The devices.
    pub mesh: Mesh,
    /// The configuration in full.
    pub parallel: ir::options::ParallelConfig,
    /// Items of the configuration that the stack does not support: `schedule=zb-v`.
    #[serde(default)]
    pub beyond_stack: Vec<String>,
    /// Values that layers recompute by name, in the order of the forward.
    #[serde(default)]
    pub recomputed: Vec<Recomputed>,
    /// The stages in the order of the model.
    pub stages: Vec<StageReport>,
    /// The prediction of a step.
    pub predicted: Predicted,
}

/// The devices by axis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Mesh {
    /// All of them.
    pub devices: u64,
    /// The axes, outermost first.
    pub rank_order: Vec<String>,
    /// Pipeline ranks.
    pub pp: u64,
    /// Data-parallel ranks.
    pub dp: u64,
    /// Context-parallel ranks.
    pub cp: u64,
    /// Tensor-parallel ranks.
    pub tp: u64,
    /// Ranks that hold different experts, of those below pp.
    pub ep: u64,
    /// Ranks that share an expert, of those below pp.
    pub etp: u64,
}

/// A value that the backward of a layer makes again instead of it being kept; of one micro-batch on one rank.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Recomputed {
    /// The layer's block.
    pub layer: String,
    /// The value.
    pub value: String,
    /// Bytes that are not kept for it; 0: only others need it.
    pub bytes_saved: f64,
    /// Seconds of making it by itself.
    pub time_s: f64,
}

/// A pipeline stage.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StageReport {
    /// Its first run of a block.
    pub first: String,
    /// Its last.
    pub last: String,
    /// Its recomputation.
    pub variant: String,
    /// How many of its layers are computed again as a whole.
    pub whole: usize,
}

/// The prediction of a step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Predicted {
    /// Seconds of a step.
    pub step_time_s: f64,
    /// Seconds that a tenth, and nine tenths, of measured runs stayed below.
    pub interval_s: [f64; 2],
    /// Tokens per second and device.
    pub tokens_per_s_per_gpu: f64,
    /// Model FLOPs per second over the peak, causal attention halved.
    pub mfu: f64,
    /// The same with attention whole.
    pub mfu_noncausal: f64,
    /// FLOPs per second that kernels execute, with what is computed again, over the peak: causal flash attention without what the
    /// mask hides.
    pub hfu: f64,
    /// Model FLOPs of a token, forward and backward, causal attention halved.
    pub flops_per_token: f64,
    /// Dense peak of a device on the operands of its products, per second.
    pub peak_flops: f64,
    /// Bytes that a parameter takes: as kernels read it, its gradient, its master copy and its states.
    pub bytes_per_parameter: f64,
    /// Parameters of the model.
    pub parameters: u64,
    /// Micro-batches of a step.
    pub microbatches: u32,
    /// The share of choices of experts that is expected to be dropped under a router that prefers none, 0 where the stack gives
    /// experts no capacity; none of a model without experts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<f64>,
    /// The idle share of the pipeline's ranks until the last backward, in the mean.
    pub bubble: f64,
    /// Parts of the step time on the rank that ends last; they sum to the step time.
    pub time_s: TimeShares,
    /// Communication that nothing hides, of these.
    pub exposed_comm_s: Comm,
    /// Memory of the devices.
    pub memory_gib: Memory,
    /// True if it fits on the devices and leaves the margin free, and what is offloaded in the host's memory.
    pub fits: bool,
}

/// Seconds by what they go to.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TimeShares {
    /// Matrix products.
    pub gemm: f64,
    /// Attention.
    pub attention: f64,
    /// Kernels that move bytes.
    pub memory_bound: f64,
    /// Recomputation, without its communication.
    pub recompute: f64,
    /// Tensor-parallel communication.
    pub tp: f64,
    /// Context-parallel communication.
    pub cp: f64,
    /// Expert-parallel communication.
    pub ep: f64,
    /// Data-parallel communication.
    pub dp: f64,
    /// Messages between stages.
    pub p2p: f64,
    /// Waiting for other stages.
    pub bubble: f64,
    /// The update.
    pub optimizer: f64,
    /// Waiting for the CPU to launch kernels.
    pub launch: f64,
    /// Waiting for a core, where devices share them.
    pub cores: f64,
    /// Other costs of a step, and waiting for the slowest device.
    pub other: f64,
}

/// Seconds of communication that nothing hides, by axis.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Comm {
    /// Tensor-parallel.
    pub tp: f64,
    /// Context-parallel.
    pub cp: f64,
    /// Expert-parallel.
    pub ep: f64,
    /// Data-parallel.
    pub dp: f64,
    /// Between stages.
    pub pp: f64,
}

/// GiB of devices.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Reserved on the worst rank.
    pub total: f64,
    /// That rank of the pipeline.
    pub worst_rank: usize,
    /// Capacity of a device.
    #[serde(default)]
    pub capacity: f64,
    /// Usable part of it; the rest is the margin.
    #[serde(default)]
    pub usable: f64,
    /// Share of a node's host memory per device; `None` if unknown.
    #[serde(default)]
    pub host_capacity: Option<f64>,
    /// Memory of each pipeline rank.
    pub per_stage: Vec<StageMemory>,
}

/// GiB of a device, when it holds most.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StageMemory {
    /// Parameters as kernels read them.
    pub parameters: f64,
    /// Gradients.
    pub gradients: f64,
    /// Master copies and optimizer states.
    pub optimizer: f64,
    /// Saved activations.
    pub activations: f64,
    /// Logits and the values that the loss saves; not part of `activations`.
    pub logits: f64,
    /// Inner values, messages, gathered parameters, workspace.
    pub buffers: f64,
    /// All of these.
    pub allocated: f64,
    /// With what the allocator keeps beside.
    pub reserved: f64,
    /// With CUDA's context and the communicators' buffers.
    pub device: f64,
    /// Saved activations in host memory; 0 without `offload`.
    #[serde(default)]
    pub host: f64,
}

impl Predicted {
    /// The most that a device has in the host's memory.
    pub fn offloaded(&self) -> f64 {
        self.memory_gib.per_stage.iter().map(|stage| stage.host).fold(0.0, f64::max)
    }

    /// Memory of the rank with the highest peak.
    pub fn fullest(&self) -> StageMemory {
        self.memory_gib.per_stage.get(self.memory_gib.worst_rank).copied().unwrap_or_default()
    }
}

impl TimeShares {
    /// All by name, in a fixed order.
    pub fn by_name(&self) -> [(&'static str, f64); 14] {
        [
            ("gemm", self.gemm),
            ("attention", self.attention),
            ("memory_bound", self.memory_bound),
            ("recompute", self.recompute),
            ("tp", self.tp),
            ("cp", self.cp),
            ("ep", self.ep),
            ("dp", self.dp),
            ("p2p", self.p2p),
            ("bubble", self.bubble),
            ("optimizer", self.optimizer),
            ("launch", self.launch),
            ("cores", self.cores),
            ("other", self.other),
        ]
    }

    /// Seconds of all of it.
    pub fn total(&self) -> f64 {
        self.by_name().iter().map(|(_, seconds)| seconds).sum()
    }
}
