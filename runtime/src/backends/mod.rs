//! Devices that execute programs.

pub mod cpu;
pub mod cuda;
pub mod null;
mod scalar;
mod sizes;
