//! Report of an estimate: `meshwright.estimate/2`.

use super::headroom::job;
use super::request::EstimateRequest;
use super::stack_support::Beyond;
use cost::{Interval, Job, Regime};
use serde::{Deserialize, Serialize};

/// Version of the report's schema.
pub const SCHEMA: &str = "meshwright.estimate/2";

/// Chance from which on a configuration is said to fit: more likely than not.
pub(super) const LIKELY: f64 = 0.5;

/// Prediction of a step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EstimateReport {
    /// `meshwright.estimate/2`.
    pub schema: String,
    /// Version of this program.
    pub tool_version: String,
    /// `ok`.
    pub status: String,
    /// The request.
    pub inputs: EstimateRequest,
    /// Devices by axis.
    pub mesh: Mesh,
    /// The configuration in full.
    pub parallel: ir::options::ParallelConfig,
    /// Parts of the configuration that the stack does not support.
    #[serde(default)]
    pub beyond_stack: Vec<Beyond>,
    /// Figures of the hardware that are those of other hardware, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// Values of the request that change nothing, or that go beyond what the model has, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Recomputed values, in forward order.
    #[serde(default)]
    pub recomputed: Vec<Recomputed>,
    /// The stages in the order of the model.
    pub stages: Vec<StageReport>,
    /// Predicted time and memory.
    pub predicted: Predicted,
}

/// Devices by axis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Mesh {
    /// Number of devices.
    pub devices: u64,
    /// Names of the axes, outermost first.
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

/// Recomputed value of a layer, for one micro-batch on one rank.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Recomputed {
    /// Block of the layer.
    pub layer: String,
    /// Name of the value.
    pub value: String,
    /// Name of the op that computes it.
    #[serde(default)]
    pub op: String,
    /// Bytes that are not saved; 0 if the value is recomputed only for other values.
    pub bytes_saved: f64,
    /// Seconds of recomputing it alone.
    pub time_s: f64,
}

/// A pipeline stage.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StageReport {
    /// Name of its first block instance.
    pub first: String,
    /// Name of its last block instance.
    pub last: String,
    /// Index of its first block instance, as the key `stages` of a configuration counts them.
    #[serde(default)]
    pub start: u32,
    /// Its recomputation.
    pub variant: String,
    /// Number of its layers that are recomputed as a whole.
    pub whole: usize,
}

impl EstimateReport {
    /// Its configuration, with the stages that were predicted. The costs of another cluster may divide the work otherwise.
    pub fn with_stages(&self) -> ir::options::ParallelConfig {
        let mut parallel = self.parallel.clone();
        let starts: Vec<u32> = self.stages.iter().skip(1).map(|stage| stage.start).collect();
        if parallel.stages.is_empty() && starts.iter().all(|&start| start > 0) {
            parallel.stages = starts;
        }
        parallel
    }
}

/// Predicted time and memory of a step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Predicted {
    /// Seconds of a step.
    pub step_time_s: f64,
    /// 10th and 90th percentile of measured step times, in seconds.
    pub interval_s: Interval,
    /// Tokens per second and device.
    pub tokens_per_s_per_gpu: f64,
    /// Model FLOPs per second over the peak, with causal attention halved.
    pub mfu: f64,
    /// The same with full attention.
    pub mfu_noncausal: f64,
    /// FLOPs per second executed by kernels, recomputation included, over the peak. Flash attention skips masked pairs.
    pub hfu: f64,
    /// Model FLOPs per token, forward and backward, with causal attention halved.
    pub flops_per_token: f64,
    /// Dense peak FLOPs per second of a device for the format of its products.
    pub peak_flops: f64,
    /// Bytes per parameter: the parameter, its gradient, its master copy and its optimizer states.
    pub bytes_per_parameter: f64,
    /// Number of parameters of the model.
    pub parameters: u64,
    /// Kind of the job, by which its interval is wider or not.
    #[serde(default)]
    pub regime: Regime,
    /// Number of micro-batches of a step.
    pub microbatches: u32,
    /// Expected fraction of dropped tokens under uniform routing; 0 if the stack gives experts no capacity, `None` without
    /// experts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<f64>,
    /// Idle fraction of the pipeline up to the last backward, averaged over ranks.
    pub bubble: f64,
    /// Breakdown of the step on the busiest rank, the one that works longest; the parts add up to the step time.
    pub time_s: TimeShares,
    /// Exposed communication, part of the breakdown.
    pub exposed_comm_s: Comm,
    /// Memory of the devices.
    pub memory_gib: Memory,
    /// 10th and 90th percentile of the device memory of the worst rank, in GiB.
    #[serde(default)]
    pub memory_interval_gib: Interval,
    /// Probability that the worst rank's device memory is within that of its device.
    #[serde(default)]
    pub chance_to_fit: f64,
    /// `true` if devices more likely than not hold the configuration, or within a requested margin; and host memory holds what is
    /// offloaded.
    pub fits: bool,
    /// `true` if the chance that they do keeps the request's headroom, or its margin, as `plan` asks for; and host memory holds what is
    /// offloaded.
    #[serde(default)]
    pub keeps_headroom: bool,
}

/// Breakdown of a step, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TimeShares {
    /// Matrix products.
    pub gemm: f64,
    /// Attention.
    pub attention: f64,
    /// Memory-bound kernels.
    pub memory_bound: f64,
    /// Recomputation without its communication.
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
    /// Optimizer update.
    pub optimizer: f64,
    /// Waiting for the CPU to launch kernels.
    pub launch: f64,
    /// Waiting for copies to host memory and back, of activations and of optimizer states.
    #[serde(default)]
    pub host: f64,
    /// Waiting for a core or a GPU, if devices share it.
    pub cores: f64,
    /// Fixed time of a step, and waiting for the slowest device.
    pub other: f64,
}

/// Exposed communication by axis, in seconds.
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

/// Memory of devices, in GiB.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Device memory of the worst rank: [`StageMemory::device`]. It is the memory of the configuration wherever one number is given.
    pub total: f64,
    /// Pipeline rank with most device memory.
    pub worst_rank: usize,
    /// Memory of a device.
    #[serde(default)]
    pub capacity: f64,
    /// Usable memory of a device: with as much predicted memory, the chance to run out is the request's `headroom`; or the
    /// memory without the margin.
    #[serde(default)]
    pub usable: f64,
    /// Host memory per device; `None` if unknown.
    #[serde(default)]
    pub host_capacity: Option<f64>,
    /// Memory of the worst rank that holds no tensors.
    #[serde(default)]
    pub overhead: Overhead,
    /// Memory of each pipeline rank.
    pub per_stage: Vec<StageMemory>,
}

/// Memory of a device that holds no tensors, in GiB.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Overhead {
    /// Reserved by the allocator without being allocated.
    pub fragmentation: f64,
    /// Buffers of the communicators.
    pub communicators: f64,
    /// Context of the process, and the libraries' code.
    pub context: f64,
    /// Workspace of the matrix product libraries, part of the buffers.
    pub workspace: f64,
}

/// Peak memory of a device, in GiB.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StageMemory {
    /// Parameters.
    pub parameters: f64,
    /// Gradients.
    pub gradients: f64,
    /// Master copies and optimizer states.
    pub optimizer: f64,
    /// Saved activations without logits.
    pub activations: f64,
    /// Logits, and activations saved for the loss.
    pub logits: f64,
    /// Temporary values, messages, gathered parameters and workspace.
    pub buffers: f64,
    /// Allocated memory: the sum of the above.
    pub allocated: f64,
    /// Memory reserved by the allocator.
    pub reserved: f64,
    /// Device memory: reserved memory, CUDA context and communicator buffers.
    pub device: f64,
    /// Offloaded activations and optimizer states in host memory; 0 without offloading.
    #[serde(default)]
    pub host: f64,
}

impl EstimateReport {
    /// Properties of the request that errors depend on, with the name of its device.
    pub fn job(&self, device: &str) -> Job {
        let Predicted { parameters, dropped, regime, .. } = self.predicted;
        job(&self.inputs, &self.parallel, device, parameters, dropped.is_some(), regime)
    }
}

impl Predicted {
    /// Largest offloaded memory of a device, in GiB.
    pub fn offloaded(&self) -> f64 {
        self.memory_gib.per_stage.iter().map(|stage| stage.host).fold(0.0, f64::max)
    }

    /// Memory of the rank with most device memory.
    pub fn fullest(&self) -> StageMemory {
        self.memory_gib.per_stage.get(self.memory_gib.worst_rank).copied().unwrap_or_default()
    }
}

impl Overhead {
    /// Parts by name, in a fixed order.
    pub fn by_name(&self) -> [(&'static str, f64); 4] {
        [
            ("fragmentation", self.fragmentation),
            ("communicators", self.communicators),
            ("context", self.context),
            ("workspace", self.workspace),
        ]
    }
}

impl TimeShares {
    /// Parts by name, in a fixed order.
    pub fn by_name(&self) -> [(&'static str, f64); 15] {
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
            ("host", self.host),
            ("cores", self.cores),
            ("other", self.other),
        ]
    }

    /// Sum of all parts.
    pub fn total(&self) -> f64 {
        self.by_name().iter().map(|(_, seconds)| seconds).sum()
    }
}
