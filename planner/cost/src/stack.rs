//! Software description: how well a framework uses the hardware. A file of `planner/cost/stacks/`.

use crate::cluster::{Cluster, Kernel};
use crate::residual::Residual;
use crate::supports::Supports;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Framework profile of one version.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Name, as given to `--stack`.
    pub name: String,
    /// One-line description, with the sources of its facts.
    pub about: String,
    /// Constants fitted to measured runs.
    pub fitted: Fitted,
    /// Properties of the framework's code.
    #[serde(default)]
    pub facts: StackTraits,
    /// Supported configuration options.
    #[serde(default)]
    pub supports: Supports,
    /// Errors on the runs that the constants were fitted to. A file may state the ends for step time alone, `[low, high]`.
    #[serde(default, deserialize_with = "crate::residual::read")]
    pub residual: Residual,
}

/// Constants of a stack that are fitted to measured runs. There are no others.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// Fraction of the device's sustained matrix-product rate.
    pub matmul: Constant,
    /// Fraction of the rate of the device's attention kernel.
    pub attention: Constant,
    /// Ratio of the bytes that elementwise kernels move to those of the stack's fused groups.
    pub traffic: Constant,
    /// CPU time per kernel launch, in microseconds.
    pub launch_us: Constant,
    /// Constant time per step, in milliseconds.
    pub step_ms: Constant,
    /// Fraction of the bandwidth between nodes.
    pub network: Constant,
    /// Fraction of the hideable communication that is hidden.
    pub overlap: Constant,
    /// Standard deviation of a device's step time over its mean (jitter).
    pub spread: Constant,
}

/// Fitted value with its physical interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Fitted value.
    pub value: f64,
    /// Lower limit.
    pub low: f64,
    /// Upper limit.
    pub high: f64,
}

/// Properties of a framework's code.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StackTraits {
    /// True if kernels are replayed from CUDA graphs, without launch cost except in layers with experts.
    pub graphs: bool,
    /// True if layers with experts are replayed too.
    pub expert_graphs: bool,
    /// CPU work per kernel, in library calls: eager PyTorch creates views, allocates, and records or runs an autograd
    /// node around each kernel.
    pub dispatches: f64,
    /// CPU work per recomputed part of a layer, in library calls: the framework saves and restores random states, and
    /// builds and runs a separate graph.
    pub checkpoint: f64,
    /// True if recomputation of a layer stops at the last value that the layer's backward reads.
    pub stops_early: bool,
    /// Best attention kernel.
    pub attention: Kernel,
    /// Time of attention under context parallelism over that of one kernel on the same pairs, where keys of other ranks come piece by
    /// piece or gathered.
    pub pieces: f64,
    /// Groups of ops fused into one kernel, from [`Stack::GROUPS`].
    pub fused: Vec<String>,
    /// Extra bytes saved for the backward per element of an op's result, by op.
    pub saved: BTreeMap<String, f64>,
    /// Communication that overlaps with compute, from [`Stack::AXES`].
    pub hides: Vec<String>,
    /// Bytes per element of an accumulated gradient.
    pub gradient_bytes: f64,
    /// True if a 16-bit parameter has neither a master copy nor wider optimizer states.
    pub pure: bool,
    /// Bytes per element of a communicated gradient.
    pub wire_bytes: f64,
    /// Size of a gradient bucket in bytes.
    pub bucket: f64,
    /// True if the gather of updated parameters overlaps with the next forward.
    pub hides_update: bool,
    /// Messages per parameter in which ZeRO-1 and ZeRO-2 gather what they have updated, one after the other; 0 for one message for all
    /// of a rank's parameters.
    pub gathers_each: f64,
    /// True if ZeRO-1 and ZeRO-2 send what they have updated by broadcasts: each rank has whole parameters, and one rank sends after the
    /// other.
    pub broadcasts: bool,
    /// True if ZeRO-1 sums gradients by an all-reduce, of which ranks take what they update.
    pub sums_whole: bool,
    /// True if ZeRO-2 and 3 leave parameters and gradients unsharded during gradient accumulation, and reduce once a
    /// step.
    pub accumulates_whole: bool,
    /// True if they do so in a pipeline only.
    pub pipelines_whole: bool,
    /// True if gradients other than those of experts then have the communication dtype.
    pub accumulates_wide: bool,
    /// True if ZeRO-3 retains parameters gathered by a forward until the backward.
    pub keeps_gathered: bool,
    /// True if a step ends by freeing gradients, so that the next backward begins without any.
    pub frees_gradients: bool,
    /// True if ZeRO-3 shards only the master copies and casts after the gather, so that no 16-bit parameters are
    /// stored.
    pub casts_gathered: bool,
    /// True if ZeRO-3 retains the gathered parameters of the model's ends through a step, as members of the root
    /// module.
    pub keeps_ends: bool,
    /// True if gathered parameters, and gradients before they are scattered, are held for the running block alone, and the values that
    /// a block has saved until its backward ends.
    pub block_by_block: bool,
    /// True if ZeRO-2 and 3 hold and scatter the gradients of a micro-batch in the type of the parameters.
    pub scatters_narrow: bool,
    /// True if ZeRO-2 and 3 scatter the gradients of a stage after each run of consecutive micro-batches of an interleaved pipeline,
    /// which accumulate before that.
    pub scatters_runs: bool,
    /// True if ZeRO-2 and 3 sum gradients over ZeRO groups once a step.
    pub sums_groups_once: bool,
    /// True if the sums of gradients over ranks have memory of their own until the update.
    pub sums_apart: bool,
    /// True if only the first stage that holds a tied parameter has its optimizer states, and sends the others the updated parameter.
    pub shares_states: bool,
    /// True if processors of the host update the states that are offloaded: gradients go there, and parameters come back.
    pub updates_on_host: bool,
    /// True if all-gathers and reduce-scatters run level by level if that is faster than one ring.
    pub hierarchical: bool,
    /// Partition of the blocks into stages, if the configuration does not set it.
    pub cut: Cut,
    /// Seconds of a pipeline hop in addition to its message: the exchange of sizes, and the wait for both ends.
    pub hop: f64,
    /// CPU seconds per rank of a tensor-parallel collective, in a pipeline over several nodes.
    pub peer: f64,
    /// Number of streaming multiprocessors that communication occupies during compute.
    pub comm_sms: f64,
    /// Bytes moved to quantise an element: the read, the scale's pass, the write, the transposed copy.
    pub quantise: f64,
    /// Speed of grouped expert products relative to one batch of products of the same shapes.
    pub grouped: f64,
    /// Speed of grouped expert products in 8 bits relative to 16, beyond what single products gain. It counts on devices whose
    /// products read transposed copies, since each expert's operands are copied apart.
    pub grouped_transposed: f64,
    /// True if a token is sent to each node, and to each rank, at most once, for any number of its experts there.
    pub once_per_node: bool,
    /// True if a token's experts are neighbours, as with the fake gates of benchmarks.
    pub adjacent_experts: bool,
    /// True if experts drop tokens above their capacity.
    pub drops: bool,
    /// True if experts compute and store padding up to their capacity. If not, experts are costed at the tokens they
    /// receive. If `drops` is set but the model states no capacity, the capacity is an even share.
    pub pads_experts: bool,
    /// True if routing weights are applied between an expert's products, so that the backward reads none of the
    /// experts' results.
    pub weighs_inside: bool,
    /// Number of stored copies of an expert's parameter in its 8-bit or 4-bit format: row and column order, with
    /// scales.
    pub quantised_experts: f64,
    /// True if the master copy of a bf16 parameter with 16-bit optimizer states stores only the 16 missing bits. Its
    /// states then exist also in f32 while a group of parameters is updated.
    pub precision_aware: bool,
    /// Bytes per updated parameter in addition to its master copy and states: its gradient in f32.
    pub update_bytes: f64,
    /// Bytes of the gradient reduction buffers; an upper limit if all gradients are smaller.
    pub buffers: f64,
    /// Largest number of tensors held after tensor-parallel reductions have read them, one per layer. The CPU is ahead
    /// of the device, and a communicated buffer is freed only when the device is done.
    pub waiting: f64,
    /// Bytes that the allocator reserves in addition to the allocated ones.
    pub reserve: f64,
    /// Bytes of a process on the device before any tensor: the CUDA context and the libraries' code.
    pub context: f64,
    /// Workspace of the matrix product libraries in bytes.
    pub workspace: f64,
    /// Device buffers of a communicator in bytes.
    pub communicator: f64,
    /// Number of communicators in addition to one per axis.
    pub communicators: f64,
}

/// Quantity that is balanced among pipeline stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cut {
    /// Time in seconds.
    #[default]
    Time,
    /// Parameters of matrix products. A stage ends after the block at which the cumulative sum reaches its share, or
    /// earlier if only one block remains per later stage.
    Parameters,
}

impl Default for StackTraits {
    fn default() -> StackTraits {
        StackTraits {
            graphs: false,
            expert_graphs: false,
            dispatches: 1.0,
            checkpoint: 0.0,
            stops_early: false,
            attention: Kernel::default(),
            pieces: 1.0,
            fused: Vec::new(),
            saved: BTreeMap::new(),
            hides: Vec::new(),
            gradient_bytes: 4.0,
            pure: false,
            wire_bytes: 4.0,
            bucket: 25.0 * MIB,
            hides_update: false,
            gathers_each: 0.0,
            broadcasts: false,
            sums_whole: false,
            accumulates_whole: false,
            accumulates_wide: false,
            keeps_gathered: false,
            frees_gradients: false,
            pipelines_whole: false,
            casts_gathered: false,
            keeps_ends: false,
            block_by_block: false,
            scatters_narrow: false,
            scatters_runs: false,
            sums_groups_once: false,
            sums_apart: false,
            shares_states: false,
            updates_on_host: false,
            hierarchical: true,
            cut: Cut::default(),
            hop: 0.0,
            peer: 0.0,
            comm_sms: 16.0,
            quantise: 6.0,
            grouped: 0.9,
            grouped_transposed: 1.0,
            once_per_node: false,
            adjacent_experts: false,
            drops: false,
            pads_experts: false,
            weighs_inside: false,
            quantised_experts: 0.0,
            precision_aware: false,
            update_bytes: 0.0,
            buffers: 0.0,
            waiting: 0.0,
            reserve: 1.1,
            context: 512.0 * MIB,
            workspace: 32.0 * MIB,
            communicator: 64.0 * MIB,
            communicators: 0.0,
        }
    }
}

const MIB: f64 = 1024.0 * 1024.0;

/// The stacks of Meshwright's own runtime, on processors and on GPUs.
static OWN: LazyLock<[Stack; 2]> = LazyLock::new(|| {
    ["meshwright-threads", "meshwright-cuda"].map(|name| Stack::find(name).expect("a test reads every preset"))
});

impl Stack {
    /// The stack by which Meshwright itself runs a program on a cluster. Processors have no maker here.
    pub fn own(cluster: &Cluster) -> &'static Stack {
        &OWN[usize::from(cluster.device.vendor.is_some())]
    }

    /// Groups of ops that a stack may fuse into one kernel. Pointwise: the norm; SwiGLU or another gate with its product; bias
    /// and GeLU; bias, dropout and residual sum; residual sum and norm; the rotation; softmax with mask and scale. Ends: the loss
    /// with its softmax; the embedding with its sum. Matmuls: q, k and v as one, gate and up as one, weight gradients with their
    /// sum over micro-batches. Others: routing, permutation, the optimizer over all parameters. `groups`: what Meshwright's pass
    /// `fuse` puts together, by the rows that ops treat alike; `epilogue`: what follows a product in such a group is in its kernel;
    /// `product_sum`: only a sum that alone reads the product is.
    pub const GROUPS: [&str; 19] = [
        "norm",
        "swiglu",
        "bias_gelu",
        "dropout_add",
        "add_norm",
        "rope",
        "softmax",
        "loss",
        "qkv",
        "gate_up",
        "embedding",
        "router",
        "permute",
        "quantise",
        "accumulate",
        "optimizer",
        "groups",
        "epilogue",
        "product_sum",
    ];

    /// Kinds of communication that a stack may hide; `tp_backward` is that of tp behind the other gradient's product.
    pub const AXES: [&str; 6] = ["tp", "tp_backward", "dp", "cp", "ep", "p2p"];

    /// Returns whether a group of ops is one kernel.
    pub fn fuses(&self, group: &str) -> bool {
        self.facts.fused.iter().any(|fused| fused == group)
    }

    /// Returns whether communication over an axis overlaps with compute.
    pub fn hides(&self, axis: &str) -> bool {
        self.facts.hides.iter().any(|hidden| hidden == axis)
    }
}

impl Fitted {
    /// Constants by name, in a fixed order.
    pub fn by_name(&mut self) -> [(&'static str, &mut Constant); 8] {
        [
            ("matmul", &mut self.matmul),
            ("attention", &mut self.attention),
            ("traffic", &mut self.traffic),
            ("launch_us", &mut self.launch_us),
            ("step_ms", &mut self.step_ms),
            ("network", &mut self.network),
            ("overlap", &mut self.overlap),
            ("spread", &mut self.spread),
        ]
    }
}
