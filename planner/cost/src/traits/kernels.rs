//! Kernels, and their speed.

use super::figure::{Figure, Range};
use crate::enum_set::{EnumSet, named_enum};
use crate::kernel::Kernel;
use serde::{Deserialize, Serialize};

/// Kernels, and their speed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kernels {
    /// Best attention kernel.
    pub attention: Kernel,
    /// Time of attention under context parallelism over that of one kernel on the same pairs, where keys of other ranks come piece by
    /// piece or gathered.
    pub pieces: f64,
    /// Groups of ops fused into one kernel.
    pub fused: EnumSet<FusedKernel>,
    /// Bytes moved to quantise an element: the read, the scale's pass, the write, the transposed copy.
    pub quantise: f64,
    /// Speed of grouped expert products relative to one batch of products of the same shapes.
    pub grouped: f64,
    /// Speed of grouped expert products in 8 bits relative to 16, beyond what single products gain. It counts on devices whose
    /// products read transposed copies, since each expert's operands are copied apart.
    pub grouped_transposed: f64,
    /// Number of streaming multiprocessors that communication occupies during compute.
    pub comm_sms: f64,
}

named_enum! {
    /// Group of ops that a stack may fuse into one kernel.
    pub enum FusedKernel {
        /// The norm.
        Norm = "norm",
        /// SwiGLU, or another gate with its product.
        Swiglu = "swiglu",
        /// Biases and a gate whose operands are bounded, as those of gpt-oss, with its product.
        ClampedSwiglu = "clamped_swiglu",
        /// Bias and GeLU.
        BiasGelu = "bias_gelu",
        /// Bias, dropout and residual sum.
        DropoutAdd = "dropout_add",
        /// Residual sum and norm.
        AddNorm = "add_norm",
        /// The rotation.
        Rope = "rope",
        /// Softmax with mask and scale.
        Softmax = "softmax",
        /// The loss with its softmax.
        Loss = "loss",
        /// The products of q, k and v as one.
        Qkv = "qkv",
        /// The products of gate and up as one.
        GateUp = "gate_up",
        /// The embedding with its sum.
        Embedding = "embedding",
        /// Routing.
        Router = "router",
        /// Permutation of the experts' tokens.
        Permute = "permute",
        /// Quantisation.
        Quantise = "quantise",
        /// Weight gradients with their sum over micro-batches.
        Accumulate = "accumulate",
        /// The optimizer over all parameters.
        Optimizer = "optimizer",
        /// Ops that Meshwright's pass `fuse` puts together, by the rows that they treat alike.
        Groups = "groups",
        /// Ops after a product in such a group, in the product's kernel.
        Epilogue = "epilogue",
        /// A sum that alone reads a product in such a group, in the product's kernel.
        ProductSum = "product_sum",
    }
}

impl Default for Kernels {
    fn default() -> Kernels {
        Kernels {
            attention: Kernel::default(),
            pieces: 1.0,
            fused: EnumSet::default(),
            quantise: 6.0,
            grouped: 0.9,
            grouped_transposed: 1.0,
            comm_sms: 16.0,
        }
    }
}

impl Kernels {
    pub(super) fn figures(&self) -> Vec<Figure> {
        let Kernels { attention: _, pieces, fused: _, quantise, grouped, grouped_transposed, comm_sms } = *self;
        let share = Range::new(0.01, 1.0, "a share");
        vec![
            Range::new(1.0, 10.0, "times the time of one kernel").of("kernels.pieces", pieces),
            Range::new(0.0, 1e3, "bytes of an element").of("kernels.quantise", quantise),
            share.of("kernels.grouped", grouped),
            share.of("kernels.grouped_transposed", grouped_transposed),
            Range::new(0.0, 1e4, "parts of a device").of("kernels.comm_sms", comm_sms),
        ]
    }
}
