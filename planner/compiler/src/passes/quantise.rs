//! `quantise`: gives products with parameters 8-bit operands.

use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use ir::text::File;
use transforms::quantise::quantise;

pub(super) struct Quantise;

impl Pass for Quantise {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "quantise",
            does: "give products with parameters 8-bit operands and scales",
            why_here: "forward and gradients are quantised alike, and the planner must see all",
            reads: Level::Differentiated,
            writes: Level::Differentiated,
        }
    }

    /// A model whose shardings are all stated keeps its statements.
    fn is_needed(&self, file: &File, context: &mut Context<'_>) -> Result<bool, CompileError> {
        let is_planned = file.model.has_mesh && file.model.is_fully_specified();
        Ok(context.request().quantisation.is_some() && !is_planned)
    }

    fn run(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<(), CompileError> {
        let Some(recipe) = &context.request().quantisation else { return Ok(()) };
        quantise(&mut file.model, recipe)
            .map_err(|why| CompileError::Fault { pass: "quantise", why: why.to_string() })?;
        Ok(())
    }
}
