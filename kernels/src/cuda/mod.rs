//! Kernels for NVIDIA GPUs, to the extent that they need no GPU: the CUDA C text of elementwise kernels, and contractions
//! as cuBLASLt descriptors. This module never calls CUDA.

pub mod accuracy;
pub mod elementwise;
pub mod gemm;
