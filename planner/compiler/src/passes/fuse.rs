//! `fuse`: groups statements that run as one kernel.

use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use ir::text::File;
use ir::verify;

pub(super) struct Fuse;

impl Pass for Fuse {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "fuse",
            does: "group statements that run as one kernel",
            why_here: "after codegen, which orders the statements of a body",
            reads: Level::Program,
            writes: Level::Program,
        }
    }

    /// A program that states places stays as it is: a group has none for its interior values.
    fn is_needed(&self, file: &File, context: &mut Context<'_>) -> Result<bool, CompileError> {
        Ok(context.request().fusion && !Level::Placed.is_in(file))
    }

    fn run(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<(), CompileError> {
        if let Some(program) = &mut file.program {
            ::codegen::fuse(&file.model, program, context.platform());
        }
        Ok(())
    }

    fn verify(&self, file: &File, _: &mut Context<'_>) -> Result<(), CompileError> {
        let Some(program) = &file.program else { return Ok(()) };
        verify::program::check(&file.model, program, None).map_err(CompileError::Program)
    }
}
