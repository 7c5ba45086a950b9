//! NVIDIA GPUs.
//!
//! CUDA's libraries are loaded at first use: the program builds and runs without them, and reports a missing library as
//! [`Error::Missing`].

mod backend;
pub mod check;
mod descriptors;
pub mod device;
mod error;
pub mod fused;
pub mod library;
mod lower;
mod lower_rows;
pub mod matmul;
pub mod memory;
pub mod nvrtc;
pub mod peaks;
pub mod plan;
pub mod staging;
pub mod stream;
mod text;
mod trial;
mod written;

pub use backend::{Cuda, Kernel};
pub use error::Error;
