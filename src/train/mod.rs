//! Training: reads text into micro-batches, runs them on the executor, and records results in `metrics.jsonl`.
//!
//! ```text
//! request -> data, model -> compile -> executor;   per step: fill -> step -> record;   now and then: save, evaluate
//! ```

mod backend;
mod checkpoint;
mod feed;
mod free;
mod lock;
mod measure;
mod memory;
mod outputs;
mod prepare;
mod report;
mod request;
mod run;

pub use backend::{check_ops, no_gpu};
pub use free::free_memory;
pub use prepare::predict;
pub use report::{ProfileReport, Progress, Quiet, Routed, RunHeader, Signal, TrainReport};
pub use request::{TrainRequest, check_precision};
pub use run::train;
