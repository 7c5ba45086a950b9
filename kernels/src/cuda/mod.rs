//! Kernels for NVIDIA GPUs, as far as they can be made without one: the CUDA C text of elementwise kernels, and contractions
//! in the terms of cuBLASLt. Nothing here calls CUDA.

pub mod accuracy;
pub mod elementwise;
pub mod gemm;
