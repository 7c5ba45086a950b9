//! The names that most programs need: `use meshwright::prelude::*`.
//!
//! ```
//! use meshwright::prelude::*;
//!
//! let config = ParallelConfig { dp: 4, tp: 2, zero: 1, ..Default::default() };
//! let report = estimate("llama3-8b").parallel(config).on("h100", 8).batch(64, 4096).run()?;
//! assert!(report.predicted.step_time_s > 0.0);
//! # Ok::<(), Error>(())
//! ```

pub use crate::{
    CancelToken, Cluster, DType, Error, EstimateReport, ModelConfig, ParallelConfig, Plan, Recompute, Stack, compile,
    estimate, json, plan,
};
#[cfg(feature = "train")]
pub use crate::{TokenPiece, TokenSource, TokenStream, train};
