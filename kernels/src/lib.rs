//! Compute kernels on plain slices.
//!
//! The crate is part of the bottom layer of Meshwright: it imports no other crate of the workspace, and only `runtime` uses it.
//!
//! A kernel is a function of input slices, output slices and sizes. It knows no graph, no device and no sharding. Tensors
//! are dense and row-major. A kernel that works on a shard of a larger tensor (of the vocabulary or of the sequence) takes
//! the shard's `origin` or its elements' positions as arguments. [`cpu::Par`] is the number of threads that it may use.
//!
//! A size mismatch by the caller panics; each function documents its condition. Every size may be zero.
//!
//! ```
//! use meshwright_kernels::cpu::Par;
//! use meshwright_kernels::cpu::elementwise::{Binary, binary};
//! use meshwright_kernels::cpu::softmax::softmax;
//!
//! let mut sum = [0.0; 4];
//! binary(Binary::Add, &[1.0, 2.0, 3.0, 4.0][..], &[1.0, 0.0, -1.0, -2.0][..], &mut sum, Par(1));
//! assert_eq!(sum, [2.0; 4]);
//!
//! // Two rows of two columns.
//! let mut shares = [0.0; 4];
//! softmax(&sum, 2, &mut shares, Par(1));
//! assert_eq!(shares, [0.5; 4]);
//! ```
//!
//! Products and attention widen narrow operands while they pack blocks (`cpu::gemm`). With AVX512-BF16, products of two
//! bf16 operands multiply pairs of terms instead, with AMX tiles of them. Tiles outrun memory, so their products go by
//! strips of rows whose sums and panels stay in the L2 cache, and short ones by blocks of terms that stay in the L1 cache.
//! Attention rounds its weights and its gradients by scores, which are operands of products, as kernels of GPUs and the
//! reference do. Once warm, no kernel allocates.
//!
//! [`cpu`] has the kernels, compiled for AVX-512, AVX2 and the baseline and chosen at run time. [`cuda`] describes the same
//! kernels for GPUs as text and descriptors; the runtime launches them. [`group`] has the programs from
//! which the text is made, [`scalar`] their functions. [`cpu::narrow`] has the formats below f32 in which
//! tensors are stored.

pub mod cpu;
pub mod cuda;
mod functions;
pub mod group;
pub mod scalar;
