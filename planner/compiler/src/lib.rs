//! The whole compiler: takes a model and returns a program for every rank.
//!
//! [`model_source::ModelSource`] opens a preset, a `config.json` or a `.ir` file. [`compile::compile_source`] compiles it as
//! a [`compile::CompileRequest`] request asks. [`pipeline::compile`] runs the passes themselves; [`pipeline::passes`] lists them,
//! and a [`pass_manager::PassManager`] takes a caller's own [`pass::Pass`] among them.
//! A configuration is written in the grammar of [`parallel`]. All functions here return [`error::Error`], which has a code, a
//! message and what to do.

pub mod batch;
pub mod cancel;
pub mod compile;
pub mod compile_error;
pub mod deadline;
pub mod error;
pub mod machine_source;
pub mod model_source;
pub mod parallel;
pub mod pass;
mod pass_events;
pub mod pass_manager;
mod passes;
pub mod pipeline;
mod pipeline_options;
pub mod plan_blocks;
pub mod text_files;
mod within;
