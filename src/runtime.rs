//! The crates that execute programs.
//!
//! - [`exec::Executor`] loads a program once for each rank and runs its steps, one thread for each device.
//! - [`reference::Reference`] computes what a model means, without kernels and ranks.
//! - [`forward::Forward`] gives the logits of a model on one processor, and [`sampling::Sampling`] the next token of them.
//! - [`data`] reads text, [`checkpoint`] saves and loads, [`measure`] times kernels and collectives.
//! - [`backend`] and [`comm`] are the interfaces of backends and communicators.
//!
//! `examples/own_op.rs` of the repository loads the compiled program of a model into an executor, and compares it with the reference.

pub use ::{checkpoint, comm, data, reference};
pub use ::checkpoint::loss_scale;
pub use ::device::{arena, backend, cores, host, memory};
pub use ::exec::state;
pub use ::trainer::{forward, learning_rate, metrics, sampling};

/// Backends of devices.
pub mod backends {
    pub use ::cpu;
    #[cfg(feature = "cuda")]
    pub use ::cuda;
}

/// Execution of programs, on threads and on GPUs.
pub mod exec {
    #[cfg(feature = "cuda")]
    pub use ::cuda::{JoinedGpu, SharedGpu};
    pub use ::exec::*;
}

/// Measured rates of this machine and of its GPUs.
pub mod measure {
    #[cfg(feature = "cuda")]
    pub use ::cuda::measure as gpu;
    pub use ::trainer::measure::*;
}
