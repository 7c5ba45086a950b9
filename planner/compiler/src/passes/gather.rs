//! `gather`: lets parameters of ZeRO-3 stay gathered in a step, if the configuration says so.

use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use ir::text::File;

pub(super) struct Gather;

impl Pass for Gather {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "gather",
            does: "with gather=step: gather the parameters of ZeRO-3 once a step, in a section of their own",
            why_here: "after collectives: it moves those that gather parameters",
            reads: Level::Differentiated,
            writes: Level::Differentiated,
        }
    }

    fn is_needed(&self, file: &File, context: &mut Context<'_>) -> Result<bool, CompileError> {
        Ok(file.staged.is_none() && context.request().options.parallel.gathers_once())
    }

    fn run(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<(), CompileError> {
        planner::gather_once(&mut file.model, context.request().options.bucket_bytes);
        Ok(())
    }

    fn verify(&self, file: &File, _: &mut Context<'_>) -> Result<(), CompileError> {
        ir::verify::verify_planned(&file.model).map_err(CompileError::Model)
    }
}
