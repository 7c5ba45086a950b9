//! `ring`: lets attention go round a ring of ranks, if the configuration shares sequences so.

use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use ir::text::File;

pub(super) struct Ring;

impl Pass for Ring {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "ring",
            does: "with cp_kind=ring: let keys and values go round the ranks that share a sequence",
            why_here: "after collectives: it takes the place of the gathers of attention",
            reads: Level::Differentiated,
            writes: Level::Differentiated,
        }
    }

    fn is_needed(&self, file: &File, context: &mut Context<'_>) -> Result<bool, CompileError> {
        Ok(file.staged.is_none() && planner::is_ring(&context.request().options.parallel))
    }

    fn run(&mut self, file: &mut File, _: &mut Context<'_>) -> Result<(), CompileError> {
        Ok(planner::ring(&mut file.model)?)
    }

    fn verify(&self, file: &File, _: &mut Context<'_>) -> Result<(), CompileError> {
        ir::verify::verify_planned(&file.model).map_err(CompileError::Model)
    }
}
