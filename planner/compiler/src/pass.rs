//! Passes: values that rewrite a file or add a level to it, with a checker.

use crate::compile_error::CompileError;
use crate::pass_events;
use crate::pipeline_options::{Listeners, PipelineOptions};
use cost::Platform;
use ir::costs::ModelCosts;
use ir::graph::Model;
use ir::text::File;
use ir::verify;
use planner::shard::Watch;
use scheduler::model_costs;

/// Contents of a file, in the order in which passes add them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// A model with forward sections.
    Model,
    /// The sections I, W and U of its blocks, and the step graph. The planner's passes stay on this level.
    Differentiated,
    /// The partition into stages.
    Staged,
    /// The order of all actions on every pipeline rank.
    Scheduled,
    /// The program of every class of ranks.
    Program,
    /// The offset of every tensor in its rank's arena.
    Placed,
}

impl Level {
    /// Returns whether a file has the level.
    pub fn is_in(self, file: &File) -> bool {
        match self {
            Level::Model => true,
            Level::Differentiated => file.model.is_differentiated(),
            Level::Staged => file.staged.is_some(),
            Level::Scheduled => file.schedule.is_some(),
            Level::Program => file.program.is_some(),
            Level::Placed => file.program.as_ref().is_some_and(|program| program.has_places()),
        }
    }
}

/// Description of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassInfo {
    /// Name for `--stop-after`, observers and dumps.
    pub name: &'static str,
    /// Summary of the transformation.
    pub does: &'static str,
    /// Reason for its place among the passes.
    pub why_here: &'static str,
    /// Level that a file must have.
    pub reads: Level,
    /// Level that a file has afterwards: `reads` for a pass that rewrites its level.
    pub writes: Level,
}

impl PassInfo {
    /// Returns whether the pass adds a level; other passes rewrite one.
    pub fn adds_level(&self) -> bool {
        self.writes > self.reads
    }
}

/// A pass over a file.
///
/// A [`PassManager`](crate::pass_manager::PassManager) runs passes in order. A program adds its own with
/// [`insert_before`](crate::pass_manager::PassManager::insert_before) or
/// [`insert_after`](crate::pass_manager::PassManager::insert_after).
pub trait Pass {
    /// Name, summary and levels.
    fn info(&self) -> PassInfo;

    /// Returns whether the pass has something to do on a file. By default a pass that adds a level runs if the file lacks it, and
    /// any other pass always runs.
    ///
    /// # Errors
    /// The pass refuses the file or the request.
    fn is_needed(&self, file: &File, _context: &mut Context<'_>) -> Result<bool, CompileError> {
        let info = self.info();
        Ok(!info.adds_level() || !info.writes.is_in(file))
    }

    /// Rewrites the file, or adds a level to it.
    ///
    /// # Errors
    /// The pass refuses the file or the request.
    fn run(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<(), CompileError>;

    /// Runs, and returns whether the file has changed. By default it has; a pass that learns only by its work that there is
    /// nothing to do returns `false`, and then reports nothing.
    ///
    /// # Errors
    /// As [`Pass::run`].
    fn rewrite(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<bool, CompileError> {
        self.run(file, context).map(|()| true)
    }

    /// Checks the file after the pass, or a level that the file has stated itself. By default it checks that the model is well
    /// formed.
    ///
    /// # Errors
    /// What is wrong, as an error of the file. The manager turns it into an internal error if the pass has run.
    fn verify(&self, file: &File, _context: &mut Context<'_>) -> Result<(), CompileError> {
        verify::verify(&file.model).map_err(CompileError::Model)
    }
}

/// Data that passes share during one compilation.
pub struct Context<'a> {
    request: &'a PipelineOptions,
    platform: &'a Platform<'a>,
    listeners: Listeners<'a, 'a>,
    costs: Option<ModelCosts>,
}

impl<'a> Context<'a> {
    /// The context of a request.
    pub fn new(request: &'a PipelineOptions, platform: &'a Platform<'a>, listeners: Listeners<'a, '_>) -> Context<'a> {
        let Listeners { observer, watch } = listeners;
        Context { request, platform, listeners: Listeners { observer, watch }, costs: None }
    }

    /// The request.
    pub fn request(&self) -> &'a PipelineOptions {
        self.request
    }

    /// The platform whose figures decide.
    pub fn platform(&self) -> &'a Platform<'a> {
        self.platform
    }

    /// Listener of the search for shardings.
    pub fn watch(&mut self) -> &mut Watch<'a> {
        self.listeners.watch
    }

    /// Costs of a planned model; computed once, and again after its blocks or calls change.
    pub fn costs(&mut self, model: &Model) -> &ModelCosts {
        let PipelineOptions { microbatches, fusion, .. } = *self.request;
        self.costs.get_or_insert_with(|| model_costs(model, self.platform, microbatches, fusion))
    }

    /// Forgets the costs. A pass that adds a level calls it if it changes the model too.
    pub fn discard_costs(&mut self) {
        self.costs = None;
    }

    /// Shows the file after a pass. A pass that rewrites a level is shown without the levels above, which later passes check
    /// against its result.
    pub(crate) fn observe(&mut self, info: &PassInfo, file: &mut File) {
        if info.adds_level() {
            return self.show(info, file);
        }
        let staged = file.staged.take_if(|_| info.writes < Level::Staged);
        let schedule = file.schedule.take_if(|_| info.writes < Level::Scheduled);
        let program = file.program.take_if(|_| info.writes < Level::Program);
        self.show(info, file);
        file.staged = staged.or(file.staged.take());
        file.schedule = schedule.or(file.schedule.take());
        file.program = program.or(file.program.take());
    }

    fn show(&mut self, info: &PassInfo, file: &File) {
        pass_events::log_text(info.name, file);
        if info.writes == Level::Scheduled {
            pass_events::log_order(file);
        }
        (self.listeners.observer)(info.name, file);
    }
}
