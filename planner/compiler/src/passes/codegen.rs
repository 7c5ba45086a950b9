//! `codegen`: writes the program of every class of ranks.

use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use codegen::lower;
use ir::text::File;
use ir::verify;

pub(super) struct Codegen;

impl Pass for Codegen {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "codegen",
            does: "generate the program of each class of ranks",
            why_here: "needs the schedule",
            reads: Level::Scheduled,
            writes: Level::Program,
        }
    }

    fn run(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<(), CompileError> {
        if let (Some(staged), Some(schedule)) = (&file.staged, &file.schedule) {
            let microbatches = context.request().microbatches;
            file.program = Some(lower(&file.model, staged, schedule, microbatches, context.platform())?);
        }
        Ok(())
    }

    fn verify(&self, file: &File, _: &mut Context<'_>) -> Result<(), CompileError> {
        let Some(program) = &file.program else { return Ok(()) };
        verify::program::check(&file.model, program, None).map_err(CompileError::Program)
    }
}
