//! The software: how well a framework uses the hardware. A file of `planner/cost/stacks/`.

use crate::cluster::Kernel;
use crate::supports::Supports;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A framework in a version.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// As `--stack` says it.
    pub name: String,
    /// One line on it, and where its facts are from.
    pub about: String,
    /// What is fitted to measured runs.
    pub fitted: Fitted,
    /// What is known of its code.
    #[serde(default)]
    pub facts: Facts,
    /// What it has of what a layout may choose.
    #[serde(default)]
    pub supports: Supports,
    /// Natural logarithms of measured over predicted step time that a tenth, and nine tenths, of the runs stay below.
    #[serde(default = "unfitted")]
    pub residual: [f64; 2],
}

/// The constants of a stack that are fitted to measured runs. There are no others.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// Share of the rate that the device's large products sustain.
    pub matmul: Constant,
    /// Share of the rate of the device's attention kernel.
    pub attention: Constant,
    /// Bytes that elementwise kernels move, over those of the stack's fused groups.
    pub traffic: Constant,
    /// Microseconds of the CPU for a kernel.
    pub launch_us: Constant,
    /// Milliseconds of each step that grow with nothing.
    pub step_ms: Constant,
    /// Share of the bandwidth between nodes.
    pub network: Constant,
    /// Share of the communication that can be hidden which is.
    pub overlap: Constant,
    /// Standard deviation of a device's step over its mean.
    pub spread: Constant,
}

/// A fitted figure and the interval that physics leaves it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The figure.
    pub value: f64,
    /// The least that it can be.
    pub low: f64,
    /// The most that it can be.
    pub high: f64,
}

/// What is known of a framework's code.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Facts {
    /// Kernels are replayed from graphs: launches cost nothing, but those of layers with experts.
    pub graphs: bool,
    /// Whether these are replayed too.
    pub expert_graphs: bool,
    /// What its CPU does for a kernel, in calls of the library: eager PyTorch makes views, allocates, and notes or runs the node
    /// of automatic differentiation around each.
    pub dispatches: f64,
    /// What its CPU does for each part of a layer that is computed again, in calls of the library: states of random numbers are
    /// saved and set, and a graph of its own is built and run.
    pub checkpoint: f64,
    /// Whether a layer that is computed again stops at the last value that its backward reads.
    pub stops_early: bool,
    /// The best attention kernel that it has.
    pub attention: Kernel,
    /// Groups of ops that are one kernel, of [`Stack::GROUPS`].
    pub fused: Vec<String>,
    /// What it keeps for the backward beyond what the graph reads: bytes for an element of an op's result, by op.
    pub saved: BTreeMap<String, f64>,
    /// Which communication hides behind compute, of [`Stack::AXES`].
    pub hides: Vec<String>,
    /// Bytes of an accumulated gradient.
    pub gradient_bytes: f64,
    /// Whether a 16-bit parameter has neither a master copy nor wider optimizer states.
    pub pure: bool,
    /// Bytes of a gradient on the wire.
    pub wire_bytes: f64,
    /// Bytes of gradients that are reduced together.
    pub bucket: f64,
    /// Whether parameters that a step updates are gathered while the next forward runs.
    pub hides_update: bool,
    /// Seconds of the CPU for each part of a parameter that these are gathered from, where the stack copies part by part: as
    /// many as parameters times ranks.
    pub part: f64,
    /// Whether ZeRO-2 and 3 leave parameters and gradients whole while micro-batches accumulate, and sum once a step.
    pub accumulates_whole: bool,
    /// Whether they do so in a pipeline alone.
    pub pipelines_whole: bool,
    /// Whether gradients of all but experts are then in the wire's format.
    pub accumulates_wide: bool,
    /// Whether ZeRO-3 leaves parameters that a forward has gathered whole until the backward.
    pub keeps_gathered: bool,
    /// Whether a step ends by freeing gradients, so that its first backward begins without any.
    pub frees_gradients: bool,
    /// Whether ZeRO-3 cuts the master copies alone, and casts what it gathers: no 16-bit parameters are kept beside them.
    pub casts_gathered: bool,
    /// Whether ZeRO-3 keeps the parameters of the model's ends gathered through a step: they are the root module's.
    pub keeps_ends: bool,
    /// Whether gathers and scatters go level by level where that takes less than one ring.
    pub hierarchical: bool,
    /// How it cuts the blocks into stages where the layout does not say.
    pub cut: Cut,
    /// Seconds of a hop of the pipeline beside its message: what is said of its size, and the wait for both ends.
    pub hop: f64,
    /// Seconds of the CPU for each rank that a tensor-parallel collective joins, in a pipeline over several nodes.
    pub peer: f64,
    /// Parts of the device that communication takes while compute runs.
    pub comm_sms: f64,
    /// Bytes that quantising an element moves: what is read, the scale's pass, what is written, the transposed copy.
    pub quantise: f64,
    /// Speed of the products of experts over that of one batch of products of the same shapes.
    pub grouped: f64,
    /// Whether a token goes to a node, and to a rank, once, however many of its experts are there.
    pub once_per_node: bool,
    /// Whether a token's experts are neighbours, as the fake gates of benchmarks choose them.
    pub adjacent_experts: bool,
    /// Whether experts drop tokens for which they have no place.
    pub drops: bool,
    /// Whether experts compute and hold empty places too. Else they are priced at what tokens take of them, and where `drops`
    /// says that they have a capacity though the model states none, it is their even share.
    pub pads_experts: bool,
    /// Whether experts weigh what lies between their products, so that the backward reads none of their results.
    pub weighs_inside: bool,
    /// How often an expert's parameter is kept as its products read it, where these have 8 or 4 bits: in one order and in the
    /// other, with their scales.
    pub quantised_experts: f64,
    /// Whether of a bf16 parameter with 16-bit optimizer states the master copy is the 16 bits that it lacks, and its states are
    /// there in f32 too while a group of parameters is updated.
    pub precision_aware: bool,
    /// Bytes of an updated parameter beside its master copy and states: of its gradient in f32.
    pub update_bytes: f64,
    /// Bytes of the buffers through which gradients are summed, unless all of these are less.
    pub buffers: f64,
    /// How many tensors that sums over tp have read are held at most, one of each layer: the CPU is ahead of the device, and
    /// what communication reads is free when the device is done with it.
    pub waiting: f64,
    /// Bytes that the allocator reserves over those allocated.
    pub reserve: f64,
    /// Bytes of a process on the device before any tensor: CUDA's context and the libraries' code.
    pub context: f64,
    /// Bytes that the libraries of matrix products keep.
    pub workspace: f64,
    /// Bytes of a communicator's buffers on the device.
    pub communicator: f64,
    /// How many it opens beside one for each axis.
    pub communicators: f64,
}

/// What the stages of a pipeline share out evenly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cut {
    /// Seconds.
    #[default]
    Time,
    /// Parameters of matrix products: a stage ends after the block with which the sum of all up to it reaches its share, and
    /// earlier where only one block is left for each later stage.
    Parameters,
}

impl Default for Facts {
    fn default() -> Facts {
        Facts {
            graphs: false,
            expert_graphs: false,
            dispatches: 1.0,
            checkpoint: 0.0,
            stops_early: false,
            attention: Kernel::default(),
            fused: Vec::new(),
            saved: BTreeMap::new(),
            hides: Vec::new(),
            gradient_bytes: 4.0,
            pure: false,
            wire_bytes: 4.0,
            bucket: 25.0 * MIB,
            hides_update: false,
            part: 0.0,
            accumulates_whole: false,
            accumulates_wide: false,
            keeps_gathered: false,
            frees_gradients: false,
            pipelines_whole: false,
            casts_gathered: false,
            keeps_ends: false,
            hierarchical: true,
            cut: Cut::default(),
            hop: 0.0,
            peer: 0.0,
            comm_sms: 16.0,
            quantise: 6.0,
            grouped: 0.9,
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

impl Stack {
    /// Groups of ops that a stack may have as one kernel: the norm; SwiGLU or another gate with its product; bias and GeLU;
    /// bias, dropout and residual sum; residual sum and norm; the rotation; softmax with mask and scale; the loss with its
    /// softmax; the products of q, k and v, and of gate and up, as one; the embedding with its sum; routing, permutation;
    /// weight gradients with their sum over micro-batches; the optimizer over all parameters.
    pub const GROUPS: [&str; 16] = [
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
    ];

    /// Kinds of communication that a stack may hide; `tp_backward` is that of tp behind the other gradient's product.
    pub const AXES: [&str; 6] = ["tp", "tp_backward", "dp", "cp", "ep", "p2p"];

    /// Whether a group of ops is one kernel.
    pub fn fuses(&self, group: &str) -> bool {
        self.facts.fused.iter().any(|fused| fused == group)
    }

    /// Whether communication over an axis hides behind compute.
    pub fn hides(&self, axis: &str) -> bool {
        self.facts.hides.iter().any(|hidden| hidden == axis)
    }
}

impl Fitted {
    /// The constants by name, in a fixed order.
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

/// Before any fit: from a tenth less to a quarter more.
fn unfitted() -> [f64; 2] {
    [-0.105, 0.223]
}
