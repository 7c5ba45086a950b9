//! `recognise`: puts ops in the place of primitives that spell them.

use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use ir::text::File;
use transforms::recognise;

pub(super) struct Recognise;

impl Pass for Recognise {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "recognise",
            does: "put ops in the place of primitives that spell them",
            why_here: "first: later passes know the ops, and the backward follows from them",
            reads: Level::Model,
            writes: Level::Model,
        }
    }

    fn is_needed(&self, file: &File, _: &mut Context<'_>) -> Result<bool, CompileError> {
        Ok(!file.model.is_differentiated())
    }

    fn run(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<(), CompileError> {
        self.rewrite(file, context).map(drop)
    }

    fn rewrite(&mut self, file: &mut File, _: &mut Context<'_>) -> Result<bool, CompileError> {
        Ok(recognise::changes(&mut file.model).is_some())
    }
}
