//! The planner's passes: each is a row of `planner::PASSES`.

use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use ir::text::File;

/// A row of the planner's table.
pub(super) struct PlannerPass(pub(super) &'static planner::Pass);

impl Pass for PlannerPass {
    fn info(&self) -> PassInfo {
        let planner::Pass { name, does, why_here, .. } = *self.0;
        PassInfo { name, does, why_here, reads: Level::Differentiated, writes: Level::Differentiated }
    }

    fn run(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<(), CompileError> {
        let (options, platform) = (&context.request().options, context.platform());
        Ok(self.0.run(&mut file.model, options, platform, context.watch())?)
    }

    fn verify(&self, file: &File, _: &mut Context<'_>) -> Result<(), CompileError> {
        (self.0.verify)(&file.model).map_err(CompileError::Model)
    }
}
