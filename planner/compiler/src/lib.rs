//! The whole compiler: takes a model and returns a program for every rank.
//!
//! The crate joins `planner` and `scheduler`, which do not know each other, and `scheduler/codegen`. The estimator, the search and
//! the root package use it.
//!
//! - [`model_source::ModelSource`] opens a preset, a `config.json` or a `.ir` file.
//! - [`compile::compile_source`] compiles it as a [`compile::CompileRequest`] asks.
//! - [`pipeline::compile`] runs the passes themselves; [`pipeline::passes`] lists them, and a
//!   [`pass_manager::PassManager`] takes a caller's own [`pass::Pass`] among them.
//! - [`parallel`] is the grammar of a configuration. [`cancel::CancelToken`] and [`deadline::Deadline`] end long requests.
//!
//! Errors are enums whose variants have a code, a message and a fix; all convert to [`error::Error`], as `?` does.
//!
//! A `Pass` names the levels that it reads and writes, and has a checker. The `PassManager` runs the passes of planner,
//! scheduler and a caller over a file of any level: it checks, reports and stops in one loop. A level that a file states
//! already is checked and kept. `within` repeats the search for shardings until the arenas fit. `plan_blocks`
//! runs the planner alone, for estimates.
//!
//! ```
//! use meshwright_compiler::compile::{CompileRequest, compile_source};
//! use meshwright_compiler::model_source::ModelSource;
//! use meshwright_compiler::parallel;
//!
//! let source = ModelSource::open("tiny-llama")?;
//! let request = CompileRequest { parallel: "dp=2,pp=2".to_string(), ..CompileRequest::default() };
//! let mut passes = Vec::new();
//! let file = compile_source(&source, &request, None, &mut |pass, _| passes.push(pass))?;
//! assert_eq!(passes.last(), Some(&"assign_buffers"));
//! assert_eq!(file.program.unwrap().classes.len(), 2);
//! assert_eq!(parallel::parse("dp=2,pp=2")?.devices(), 4);
//! # Ok::<(), meshwright_compiler::error::Error>(())
//! ```

pub mod batch;
pub mod cancel;
pub mod compile;
pub mod compile_error;
pub mod compile_target;
pub mod deadline;
pub mod error;
mod exported;
mod images;
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
pub mod precision;
pub mod request_error;
pub mod text_files;
mod within;
