//! NVIDIA GPUs.
//!
//! The libraries of CUDA are loaded when they are first used: the program builds and runs without them, and says what is
//! missing ([`Error::Missing`]).

mod backend;
pub mod check;
pub mod device;
pub mod elementwise;
mod error;
pub mod lane;
pub mod library;
pub mod matmul;
pub mod memory;
pub mod nvrtc;
pub mod peaks;
pub mod plan;
pub mod staging;

pub use backend::{Contract, Cuda, Kernel};
pub use error::Error;
