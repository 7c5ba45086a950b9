//! NVIDIA GPUs.
//!
//! CUDA's libraries are loaded at first use: the program builds and runs without them, and reports a missing library as
//! [`Error::Missing`].
//!
//! Ranks that share a GPU are threads of the process, each with an arena of one allocation, a stream for each of its
//! threads, and one for each group and channel. Threads meet on the host as those of the CPU do; the data moves by copies
//! and kernels that add in rank order, so that sums have the CPU's bits.
//!
//! An exchange counts as read once its copy kernel is enqueued. Later work waits for the copy's CUDA event. Events are
//! recorded before anyone waits on them, so streams cannot deadlock. A rank without peers in its process is captured in its
//! second step and repeated as a graph. Inputs of a step are in pinned memory (`border`), and seed and step in a buffer
//! that kernels read.

mod addend;
mod backend;
mod border;
pub mod check;
mod codes;
mod descriptors;
pub mod device;
mod error;
pub mod fused;
mod graph;
mod joined_gpu;
pub mod library;
mod lower;
mod lower_rows;
mod marks;
pub mod matmul;
pub mod measure;
mod medium;
pub mod memory;
pub mod nccl;
pub mod nvrtc;
pub mod peaks;
pub mod plan;
mod runs;
mod scaled;
mod shared_gpu;
pub mod staging;
pub mod stream;
mod text;
mod trial;
mod written;

pub use backend::{Cuda, Kernel};
pub use error::Error;
pub use graph::StepGraph;
pub use joined_gpu::JoinedGpu;
pub use medium::DeviceMemory;
pub use scaled::has_eight_bits;
pub use shared_gpu::SharedGpu;
