//! Semantics of the IR: an evaluator of unsharded graphs, in naive loops over dense arrays, in f32 or f64.
//!
//! Tests compare every compiled program with this evaluator, so it shares no code with the kernels and knows no ranks. It
//! ignores shardings on types: collectives return their operands, and a partial value is already reduced. An op computes in
//! [`Real`]; after each statement its results are rounded to their types, if these are narrower than f32.
//!
//! [`random`] and [`ops`] contain the definitions, [`block`] runs the sections of a block, [`model`] the training step.

pub mod block;
pub mod model;
pub mod ops;
mod pass;
pub mod random;
pub mod real;
mod round;
pub mod tensor;

pub use block::BlockRun;
pub use model::{MicroBatch, Reference, StepResult};
pub use ops::Context;
pub use real::Real;
pub use round::{Rounding, Within};
pub use tensor::{Array, Tensor};
