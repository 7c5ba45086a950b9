//! Meshwright plans, compiles and runs the training of large models on many devices.
//!
//! [`plan`](fn@plan) finds the fastest parallel configuration of a model on a cluster and explains it:
//!
//! ```
//! let plan = meshwright::plan("llama3-8b").on("h100", 8).batch(128, 8192).run()?;
//! println!("{plan}");
//! let file = plan.compile()?;
//! println!("{} classes of ranks", file.program.unwrap().classes.len());
//! # Ok::<(), meshwright::Error>(())
//! ```
//!
//! | entry point | answer |
//! |---|---|
//! | [`plan`](fn@plan) | the best configuration, with its prediction, alternatives and reasons: [`Plan`] |
//! | [`estimate`](fn@estimate) | step time and memory of one configuration, or of many: [`EstimateReport`] |
//! | [`compile`](fn@compile) | the IR after any pass, and the [`Program`] of every rank: [`File`] |
//! | [`predicting::predict`] | the simulated step of a compiled file: [`predicting::StepPrediction`] |
//! | [`collectives::collectives`] | what the ranks of a compiled file send in a step: [`collectives::CollectiveReport`] |
//! | [`groups::groups`] | the statements of a compiled file that run as one kernel, and why not more: [`groups::GroupReport`] |
//! | [`placements::placements`] | the shards of a model's weights, by their names in `transformers`: [`placements::Placements`] |
//! | [`train`](fn@train) | a trained model; every device is a thread of the process: [`train::TrainReport`] |
//! | [`generate::generate`] | a text that the model of a checkpoint continues: [`generate::Generated`] |
//! | [`tokenize::tokenize()`] | text as files of tokens: [`tokenize::Tokenized`] |
//! | [`reshard::reshard`] | the cheapest collectives between two shardings of a tensor: [`reshard::ReshardReport`] |
//! | [`view::report`](view::report::report) | a pipeline schedule, checked, simulated, and drawn by [`view::draw`] |
//! | [`calibrate`], [`accuracy`] | this machine as a [`Cluster`]; predictions against measured runs |
//!
//! The programs in `examples/` of the repository show each of these in about 50 lines.
//!
//! Settings are typed values or their texts: `.parallel("tp=2,zero=1")` is `.parallel(ParallelConfig { tp: 2, zero: 1,
//! ..Default::default() })`. A model is a name, a path, or a [`Model`]; a cluster is a name, a path, or a [`Cluster`].
//! Reports implement `Display` with the text that the command line prints; [`json`](fn@json) writes the fields of `--format json`. A
//! [`CancelToken`] ends a search or a training run from another thread.
//!
//! [`Error`] has a [`Code`] of the catalogue, a message and a fix. The crates below are re-exported whole, [`ir`] first, so that
//! a program needs no other dependency. [`cli`] is the command line.
//!
//! Features: `train` (on by default) runs programs on processors, `cuda` on GPUs, `tokenize` makes tokens of text,
//! `pt2` reads models that `torch.export` recorded, and `full` has all of them. Without any, the library plans, estimates, compiles and exports.

mod builders;
#[cfg(not(target_family = "wasm"))]
pub mod cli;
pub mod error;
#[cfg(all(feature = "train", feature = "pt2"))]
pub mod exported;
#[cfg(feature = "train")]
mod hub;
mod json;
#[cfg(feature = "train")]
pub mod placements;
pub mod prelude;
#[cfg(all(feature = "train", not(target_family = "wasm")))]
pub mod pytorch;
#[cfg(feature = "train")]
pub mod runtime;

pub use inspect::{collectives, exporting, groups, predicting, reshard};
#[cfg(feature = "tokenize")]
pub use tokenize;
#[cfg(feature = "train")]
pub use trainer::{calibrate, generate, launch, train};
#[cfg(feature = "train")]
pub use weights;
pub use {
    accuracy, autotune, codegen, compiler, cost, estimator, fusion, ir, planner, scheduler, simulator, support, trace,
    transforms, view,
};

pub use autotune::explain::{Planned, WhyNot};
pub use autotune::plan::{Infeasible, Objective, PlanReport, PlanRequest, Search};
pub use builders::{
    ClusterInput, CompileBuilder, ConfigText, EstimateBuilder, ModelInput, OptimizerText, Plan, PlanBuilder,
    PrecisionText, StackInput, UpdateRule, compile, estimate, plan,
};
#[cfg(feature = "train")]
pub use builders::{TrainBuilder, train};
pub use compiler::cancel::CancelToken;
pub use compiler::compile::CompileRequest;
pub use compiler::model_source::ModelSource;
pub use compiler::pass::{Pass, PassInfo};
pub use compiler::pipeline::passes;
pub use cost::{Cluster, Stack};
#[cfg(feature = "train")]
pub use data::source::{TokenPiece, TokenSource, TokenStream};
pub use error::Error;
pub use estimator::{EstimateReport, EstimateRequest, Estimator};
pub use ir::catalogue::Code;
pub use ir::graph::Model;
pub use ir::models::ModelConfig;
pub use ir::options::{CpKind, ParallelConfig, Recompute};
pub use ir::program::Program;
pub use ir::schedule::Schedule;
pub use ir::staged::Staged;
pub use ir::text::File;
pub use ir::types::DType;
pub use json::json;
pub use scheduler::schedules::{SCHEDULES, ScheduleError, ScheduleKind};
