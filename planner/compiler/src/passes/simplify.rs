//! `simplify`: takes moves, constants and repeated terms out of the sections.

use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use ir::text::File;
use transforms::simplify::simplify;

pub(super) struct Simplify;

impl Pass for Simplify {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "simplify",
            does: "take moves, constants and repeated terms out of the sections",
            why_here: "the backward repeats moves of the forward, and quantise looks for products",
            reads: Level::Differentiated,
            writes: Level::Differentiated,
        }
    }

    /// A model whose shardings are all stated keeps its statements.
    fn is_needed(&self, file: &File, _: &mut Context<'_>) -> Result<bool, CompileError> {
        let is_planned = file.model.has_mesh && file.model.is_fully_specified();
        Ok(!is_planned)
    }

    fn run(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<(), CompileError> {
        self.rewrite(file, context).map(drop)
    }

    fn rewrite(&mut self, file: &mut File, _: &mut Context<'_>) -> Result<bool, CompileError> {
        Ok(simplify(&mut file.model))
    }
}
