//! Training: reads text into micro-batches, runs them on the executor, and records results in `metrics.jsonl`.
//!
//! ```text
//! request -> data, model -> compile -> executor;   per step: fill -> step -> record;   now and then: save, evaluate
//! ```
//!
//! [`train`](fn@train) runs a request. [`predict`] simulates a step without data:
//!
//! ```
//! use meshwright_trainer::train::{TrainRequest, predict};
//!
//! let request = TrainRequest { parallel: "dp=2,tp=2".to_string(), ..TrainRequest::default() };
//! let (step, _trace) = predict(&request)?;
//! assert_eq!((step.devices, step.tokens), (4, Some(16 * 128)));
//! # Ok::<(), meshwright_trainer::error::Error>(())
//! ```

mod agreement;
mod backend;
mod checkpoint;
mod comm;
mod data;
mod endings;
mod examples;
mod expert_watch;
mod faults;
mod feed;
mod first_weights;
mod free;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "no_gpu.rs"]
mod gpu;
#[cfg(feature = "cuda")]
mod gpu_check;
mod header;
mod image_data;
mod inject;
mod loaded;
mod lock;
mod measure;
mod memory;
mod optimizer;
mod outputs;
mod prepare;
mod ranks;
mod replicas;
mod report;
mod report_text;
mod request;
mod run;
mod saving;
mod sources;
mod stragglers;

pub use crate::error::Error;
pub use crate::metrics::{EvalRecord, StepRecord};
pub(crate) use checkpoint::refused;
pub use comm::{decline, process_number};
pub use data::OwnTokens;
pub use feed::Feed;
pub use first_weights::FirstWeights;
pub use free::free_memory;
#[cfg(feature = "cuda")]
pub use gpu::no_gpu;
#[cfg(feature = "cuda")]
pub use gpu_check::check_training;
pub use optimizer::SETTINGS;
pub(crate) use prepare::check_request;
pub use prepare::{Given, predict};
pub use ranks::{AxisSpread, RankPlace, RankReport, ranks};
pub use report::{ExampleReport, ProfileReport, Progress, Quiet, Routed, RunHeader, SetShare, Signal, TrainReport};
pub use request::TrainRequest;
pub use run::{train, train_given};
