//! `recognise`: puts ops in the place of primitives that spell them.

use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use ir::text::File;
use transforms::recognise::{is_recognisable, recognise};

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
        Ok(!file.model.is_differentiated() && is_recognisable(&file.model))
    }

    fn run(&mut self, file: &mut File, _: &mut Context<'_>) -> Result<(), CompileError> {
        recognise(&mut file.model);
        Ok(())
    }
}
