//! Kernels for the host processor.
//!
//! Every kernel is one portable Rust function, compiled three times: for AVX-512, for AVX2, and for the target's baseline.
//! The best version that the processor supports is selected at run time. Products and sums are never contracted, so
//! elementwise kernels return the same bits on all three. Matrix products (`gemm`) have a micro-kernel for each.
//!
//! [`Par`] is the number of threads a kernel may use; results do not depend on it. Kernels allocate nothing once scratch
//! memory and helper threads exist.

pub mod attention;
pub mod columns;
pub mod cross_entropy;
pub mod dropout;
pub mod einsum;
pub mod elementwise;
pub mod embedding;
pub mod experts;
pub mod filled;
pub mod finished;
mod gemm;
mod math;
mod matrix;
pub mod narrow;
mod nd;
pub mod norm;
pub mod optimizer;
mod par;
mod prefetch;
pub mod quantise;
pub mod reduce;
pub mod rope;
mod rounded;
pub mod scan;
pub mod select;
pub mod shape;
mod simd;
pub mod softmax;
mod source;
pub mod sparse;
pub mod take;
mod team;
#[cfg(test)]
pub(crate) mod testing;
pub mod top_k;

pub use par::Par;
pub use prefetch::prefetch;
pub use source::Source;
