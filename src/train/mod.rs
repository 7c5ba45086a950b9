//! Training: text to micro-batches, micro-batches to the machine, what comes back to `metrics.jsonl`.
//!
//! ```text
//! request -> data, model -> compile -> machine;   per step: fill -> step -> record;   now and then: save, evaluate
//! ```

mod backend;
mod checkpoint;
mod feed;
mod lock;
mod measure;
mod prepare;
mod report;
mod request;
mod room;
mod run;

pub use backend::{check_ops, no_gpu};
pub use prepare::predict;
pub use report::{ProfileReport, Progress, Quiet, RunHeader, TrainReport};
pub use request::{TrainRequest, check_precision, microbatches};
pub use room::free_memory;
pub use run::train;
