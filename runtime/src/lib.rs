//! Executes compiled per-rank programs: device backends, communicators, training data, checkpoints, and the reference
//! evaluator.

pub mod arena;
pub mod backend;
pub mod backends;
pub mod checkpoint;
mod codes;
pub mod comm;
mod cores;
pub mod data;
pub mod exec;
pub mod learning_rate;
pub mod measure;
pub mod memory;
pub mod metrics;
pub mod reference;
pub mod state;
