//! Training: runs, what starts and restarts their processes, texts of trained models, and measured rates of this machine.
//!
//! - [`train::train`] runs a [`train::TrainRequest`], [`train::predict`] simulates a step of it.
//! - [`launch::launch`] starts a run as processes, and again after failures.
//! - [`generate::generate`] continues a text by a checkpoint's model: [`forward::Forward`] gives its logits, and
//!   [`sampling::Sampling`] the next token of them.
//! - [`measure`] times kernels and collectives, [`calibrate`] makes the cluster of this machine of the times.

pub mod calibrate;
mod codec;
pub mod error;
pub mod forward;
pub mod generate;
pub mod launch;
pub mod learning_rate;
pub mod measure;
pub mod metrics;
pub mod sampling;
pub mod train;
