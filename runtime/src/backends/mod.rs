//! Devices that execute programs.

mod border;
pub mod cpu;
pub mod cuda;
mod scalar;
mod sizes;
