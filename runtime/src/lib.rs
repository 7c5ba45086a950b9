//! Executes compiled per-rank programs: device backends, communicators, training data, checkpoints, and the reference
//! evaluator.
//!
//! The crate is above `ir`, `kernels` and `runtime/trace`. It never plans: it does only what a program says. The root package joins
//! it with the compiler.
//!
//! - [`exec::Executor`] loads a program once for each rank and runs its steps, one thread for each device.
//! - [`reference::Reference`] computes what a model means, without kernels and ranks.
//! - [`forward::Forward`] gives the logits of a model on one processor, and [`sampling::Sampling`] the next token of them.
//! - [`data`] reads text, [`checkpoint`] saves and loads, [`measure`] times kernels and collectives.
//! - [`backend`] and [`comm`] are the interfaces of backends and communicators.
//!
//! ```
//! use ir::optimizer::Optimizer;
//! use ir::text::parse;
//! use meshwright_runtime::reference::{Array, MicroBatch, Reference, Tensor};
//! use std::collections::BTreeMap;
//! use transforms::differentiate::differentiate;
//!
//! // Two feed-forward layers and a classifier, of 8 samples, 16 features and 32 classes.
//! let text = include_str!("../../docs/example.ir");
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
//!
//! `examples/own_op.rs` of the repository loads the compiled program of the same model into an executor, and compares.

pub mod arena;
mod at_once;
pub mod backend;
pub mod backends;
pub mod checkpoint;
mod codes;
pub mod comm;
pub mod cores;
pub mod data;
pub mod exec;
pub mod forward;
pub mod host;
pub mod learning_rate;
pub mod loss_scale;
pub mod measure;
pub mod memory;
pub mod metrics;
pub mod reference;
pub mod sampling;
pub mod state;
mod timed;
