//! `assign_buffers`: gives every tensor its offset.

use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use codegen::buffers::assign_buffers;
use ir::text::File;
use ir::verify;

pub(super) struct AssignBuffers;

impl Pass for AssignBuffers {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "assign_buffers",
            does: "assign every tensor an offset in its rank's arena",
            why_here: "last: needs the live ranges of all tensors",
            reads: Level::Program,
            writes: Level::Placed,
        }
    }

    fn run(&mut self, file: &mut File, _: &mut Context<'_>) -> Result<(), CompileError> {
        if let Some(program) = &mut file.program {
            assign_buffers(&file.model, program, None);
        }
        Ok(())
    }

    fn verify(&self, file: &File, _: &mut Context<'_>) -> Result<(), CompileError> {
        let Some(program) = &file.program else { return Ok(()) };
        verify::program::check_places(&file.model, program, None).map_err(CompileError::Program)
    }
}
