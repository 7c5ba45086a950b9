//! NVIDIA GPUs.
//!
//! CUDA's libraries are loaded at first use: the program builds and runs without them, and reports a missing library as
//! [`Error::Missing`].

mod addend;
mod backend;
mod border;
pub mod check;
mod descriptors;
pub mod device;
mod error;
pub mod fused;
mod graph;
pub mod library;
mod lower;
mod lower_rows;
mod marks;
pub mod matmul;
mod medium;
pub mod memory;
pub mod nccl;
pub mod nvrtc;
pub mod peaks;
pub mod plan;
mod runs;
mod scaled;
pub mod staging;
pub mod stream;
mod text;
mod trial;
mod written;

pub use backend::{Cuda, Kernel};
pub use error::Error;
pub use graph::StepGraph;
pub use medium::DeviceMemory;
pub use scaled::has_eight_bits;
