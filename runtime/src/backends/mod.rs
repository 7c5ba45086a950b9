//! The devices that programs run on.

pub mod cpu;
pub mod null;
