//! The devices that programs run on.

pub mod cpu;
pub mod cuda;
pub mod null;
mod scalar;
mod sizes;
