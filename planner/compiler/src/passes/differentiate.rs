//! `differentiate`: adds the backward and the update.

use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use ir::text::File;
use std::mem::take;
use transforms::differentiate::differentiate;

pub(super) struct Differentiate;

impl Pass for Differentiate {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "differentiate",
            does: "add the sections I, W, U and the step graph",
            why_here: "the planner must see all",
            reads: Level::Model,
            writes: Level::Differentiated,
        }
    }

    fn run(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<(), CompileError> {
        file.model = differentiate(take(&mut file.model), &context.request().optimizer)?;
        Ok(())
    }
}
