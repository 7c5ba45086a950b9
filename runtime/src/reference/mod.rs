//! What the IR means: an evaluator of unsharded graphs, in naive loops over dense arrays, in f32 or f64.
//!
//! Every compiled program is compared with it, so it shares no code with the kernels and knows no ranks: shardings on
//! types are not looked at, layout changes give their operands, a debt is already paid. Element types below f32 are
//! evaluated in [`Real`] without rounding.
//!
//! [`random`] and [`ops`] state the definitions, [`block`] runs the sections of a block, [`model`] the
//! training step.

pub mod block;
pub mod model;
pub mod ops;
mod pass;
pub mod random;
pub mod real;
pub mod tensor;

pub use block::Run;
pub use model::{MicroBatch, Reference, StepResult};
pub use ops::Context;
pub use real::Real;
pub use tensor::{Array, Tensor};
