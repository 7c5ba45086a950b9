//! Kernels for the processor this program runs on.
//!
//! Every kernel is one portable Rust function, compiled three times: for AVX-512, for AVX2, and for the target's
//! baseline; the best one that the processor has is taken at run time. Products and sums are never contracted, so
//! element-wise kernels give the same bits on all three. Matrix products (`gemm`) have a micro-kernel for each.
//!
//! [`Par`] says how many threads a kernel may use. Results do not depend on it. Nothing is allocated once scratch memory
//! and helper threads are there.

pub mod attention;
pub mod cross_entropy;
pub mod dropout;
pub mod einsum;
pub mod elementwise;
pub mod embedding;
pub mod experts;
mod gemm;
mod math;
mod matrix;
mod nd;
pub mod norm;
pub mod optimizer;
mod par;
pub mod reduce;
pub mod rope;
pub mod select;
pub mod shape;
mod simd;
pub mod softmax;
mod source;
pub mod take;
mod team;
#[cfg(test)]
pub(crate) mod testing;
pub mod top_k;

pub use par::Par;
pub use source::Source;
