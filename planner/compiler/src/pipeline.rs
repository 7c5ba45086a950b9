//! The whole compiler: takes a model and returns a program for every rank.
//!
//! Levels, each with its own type and text: `Model` (operations, then shardings), `Staged` (partition into stages),
//! `Schedule` (order), `Program` (instructions of each class of ranks). A file at any level resumes from that level.

use crate::compile_error::CompileError;
use crate::pass::{Context, PassInfo};
use crate::pass_manager::PassManager;
pub use crate::pipeline_options::{Listeners, Observer, PipelineOptions};
use cost::Platform;
use ir::text::File;

/// All passes from a model to its program, in order.
pub fn passes() -> Vec<PassInfo> {
    PassManager::standard().infos().collect()
}

/// From any level to the program, or to the pass that the request stops after.
///
/// # Errors
/// The model is wrong, the options do not fit it, or a checker finds an internal error.
pub fn compile(
    file: File,
    request: &PipelineOptions,
    platform: &Platform<'_>,
    observer: &mut Observer<'_>,
) -> Result<File, CompileError> {
    let listeners = Listeners { observer, watch: &mut |_| {} };
    PassManager::standard().run(file, &mut Context::new(request, platform, listeners))
}
