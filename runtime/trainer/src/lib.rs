//! Training runs: learning rates, metrics, logits and tokens of a trained model, and measured rates of this machine.
//!
//! - [`forward::Forward`] gives the logits of a model on one processor, and [`sampling::Sampling`] the next token of them.
//! - [`measure`] times kernels and collectives.

pub mod forward;
pub mod learning_rate;
pub mod measure;
pub mod metrics;
pub mod sampling;
