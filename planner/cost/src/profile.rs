//! What one run of a planned block costs on one rank, section by section, on a machine.

use crate::machine::Machine;
use ir::goal::Layout;
use ir::graph::{Block, Model};

/// Seconds by what they go to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Seconds {
    /// Matrix products.
    pub gemm: f64,
    /// Attention.
    pub attention: f64,
    /// Kernels that move bytes.
    pub memory_bound: f64,
    /// Tensor-parallel communication that nothing hides.
    pub tp: f64,
    /// Context-parallel communication that nothing hides.
    pub cp: f64,
    /// Expert-parallel communication that nothing hides.
    pub ep: f64,
    /// What the device waits for launches: kernels times the CPU's seconds for one, beyond the sum of the others.
    pub launch: f64,
}

/// What one run of a block costs on one rank, per micro-batch.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Profile {
    /// The block's name.
    pub name: String,
    /// The forward.
    pub f: Seconds,
    /// The input gradient.
    pub i: Seconds,
    /// The weight gradient.
    pub w: Seconds,
    /// What is computed again before the input gradient.
    pub again: Seconds,
    /// Bytes kept from the forward to the backward.
    pub kept: f64,
    /// Of these, logits and what the loss keeps.
    pub logits: f64,
    /// The most bytes of inner values at once.
    pub transient: f64,
    /// Elements of parameters on one rank, before ZeRO: those that all data-parallel ranks hold.
    pub dense: f64,
    /// The same of experts, which only the ranks outside ep share.
    pub experts: f64,
    /// Bytes that it passes on to the next block.
    pub boundary: f64,
    /// FLOPs of the model's own products and attention forward, whole tensors of one micro-batch of one data-parallel rank;
    /// causal attention halved.
    pub flops: f64,
    /// The same with attention whole.
    pub flops_noncausal: f64,
}

impl Seconds {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.gemm + self.attention + self.memory_bound + self.tp + self.cp + self.ep + self.launch
    }
}

/// The profile of a block of a planned model under a layout's recomputation. The model's mesh has the axes below pp without
/// data parallelism proper: ep, cp and tp; its batch is that of one micro-batch of the ranks of one ep group.
pub fn profile(_model: &Model, _block: &Block, _layout: &Layout, _machine: &Machine<'_>) -> Profile {
    todo!()
}
