//! Options of a compilation.

use ir::optimizer::Optimizer;
use ir::options::{PlanOptions, Quantisation};
use ir::text::File;
use planner::shard::Watch;

/// How a model is to be compiled.
#[derive(Clone, Debug)]
pub struct PipelineOptions {
    /// The configuration and the rules that seed it.
    pub options: PlanOptions,
    /// Update rule of the parameters.
    pub optimizer: Optimizer,
    /// The quantisation of the operands of products with parameters, if any.
    pub quantisation: Option<Quantisation>,
    /// True to group statements that treat the same rows alike.
    pub fusion: bool,
    /// Micro-batches per step.
    pub microbatches: u32,
    /// The pass after which to stop: one of [`passes`](crate::pipeline::passes).
    pub stop_after: Option<String>,
}

/// Told of each level and pass that is reached.
pub type Observer<'a> = dyn FnMut(&'static str, &File) + 'a;

/// Those who hear how a compilation goes.
pub struct Listeners<'l, 'a> {
    /// Hears of each pass that has run.
    pub observer: &'l mut Observer<'a>,
    /// Hears of the search for shardings.
    pub watch: &'l mut Watch<'a>,
}
