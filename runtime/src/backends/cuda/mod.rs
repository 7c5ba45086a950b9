//! NVIDIA GPUs.
//!
//! CUDA's libraries are loaded at first use: the program builds and runs without them, and reports a missing library as
//! [`Error::Missing`].

mod backend;
pub mod check;
pub mod device;
pub mod elementwise;
mod error;
pub mod library;
pub mod matmul;
pub mod memory;
pub mod nvrtc;
pub mod peaks;
pub mod plan;
pub mod staging;
pub mod stream;

pub use backend::{Contract, Cuda, Kernel};
pub use error::Error;
