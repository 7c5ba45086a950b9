//! Devices of ranks: what a backend does, and the memory, threads and parts of tensors that it works on.
//!
//! The crate is above `ir` and `kernels`, and below all that executes programs. It knows no communicator and no program.
//!
//! - [`backend::Backend`] is the interface of a device, [`backend::Memory`] that of its memory.
//! - [`arena::Arena`] is the host memory of one rank, [`host`] converts numbers to the bytes that store them.
//! - [`region::Region`] is a rank's part of a tensor.
//! - [`cores`] pins threads, [`memory`] ends a process that gets no memory.

pub mod arena;
pub mod at_once;
pub mod backend;
pub mod cores;
pub mod host;
pub mod measured;
pub mod memory;
pub mod random;
pub mod region;
pub mod scalar;
pub mod sizes;
pub mod timed;
