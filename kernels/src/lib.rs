//! Compute on plain slices.
//!
//! A kernel here is a function: slices in, slices out, and the sizes it needs. It knows no graph, no device and no
//! sharding. Tensors are dense and row-major; where a kernel works on a part of a larger tensor (a vocabulary shard,
//! a range of the sequence), the part's `origin` or the positions of its elements come as arguments.
//!
//! A caller's mistake in sizes panics, and each function says when. Sizes may be zero everywhere.
//!
//! [`cuda`] has the same kernels for GPUs as text and descriptors; who runs them is elsewhere.

pub mod cpu;
pub mod cuda;
pub mod scalar;
