//! Kernels for NVIDIA GPUs, to the extent that they need no GPU: the CUDA C text of programs, and contractions as cuBLASLt
//! descriptors. This module never calls CUDA.

pub mod accuracy;
pub mod exchange;
mod flat;
pub mod gemm;
pub mod kernel;
mod loops;
mod rows;
mod scope;
mod spell;
mod tables;
mod tiles;
pub mod trials;
pub mod written;
