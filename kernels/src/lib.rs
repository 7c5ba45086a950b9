//! Compute kernels on plain slices.
//!
//! A kernel is a function of input slices, output slices and sizes. It knows no graph, no device and no sharding. Tensors
//! are dense and row-major. A kernel that works on a shard of a larger tensor (of the vocabulary or of the sequence) takes
//! the shard's `origin` or its elements' positions as arguments.
//!
//! A size mismatch by the caller panics; each function documents its condition. Every size may be zero.
//!
//! [`cuda`] describes the same kernels for GPUs as text and descriptors; the runtime launches them.

pub mod cpu;
pub mod cuda;
pub mod scalar;
