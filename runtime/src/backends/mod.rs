//! Devices that execute programs.

pub mod cpu;
pub mod cuda;
mod scalar;
mod sizes;
