//! Semantics of the IR: an evaluator of unsharded graphs, in naive loops over dense arrays, in f32 or f64.
//!
//! Tests compare every compiled program with this evaluator, so it shares no code with the kernels and knows no ranks. It
//! ignores shardings on types: collectives return their operands, and a partial value is already reduced. An op computes in
//! [`Real`]; after each statement its results are rounded to their types, if these are narrower than f32.
//!
//! [`random`] and [`ops`] contain the definitions, [`block`] runs the sections of a block, [`model`] the training step.
//!
//! ```
//! use ir::optimizer::Optimizer;
//! use ir::text::parse;
//! use meshwright_reference::{Array, MicroBatch, Reference, Tensor};
//! use std::collections::BTreeMap;
//! use transforms::differentiate::differentiate;
//!
//! // Two feed-forward layers and a classifier, of 8 samples, 16 features and 32 classes.
//! let text = include_str!("../../../docs/example.ir");
//! let model = differentiate(parse(text)?.model, &Optimizer::default())?;
//! let samples = Tensor::from_fn(&[8, 16], |at| (at as f64).sin());
//! let labels = Tensor::from_fn(&[8], |at| at as i32);
//! let inputs = BTreeMap::from([("in".to_string(), Array::Real(samples)), ("lab".to_string(), Array::Int(labels))]);
//!
//! let mut reference = Reference::<f64>::new(&model, 0);
//! let batch = [MicroBatch { inputs, valid: 8 }];
//! let first = reference.step(&batch, 1e-2)?.loss;
//! assert!(reference.loss(&batch)? < first);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
