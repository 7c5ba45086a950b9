//! `slice`: splits sequences into the slices of the schedule.

use super::on_mesh;
use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use ir::text::File;
use scheduler::predict::pipeline_of;
use transforms::slices::slice;

pub(super) struct Slice;

impl Pass for Slice {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "slice",
            does: "split sequences into the slices of the schedule",
            why_here: "before differentiate: values passed between slices need gradients",
            reads: Level::Model,
            writes: Level::Model,
        }
    }

    fn is_needed(&self, file: &File, context: &mut Context<'_>) -> Result<bool, CompileError> {
        if file.schedule.is_some() || file.model.is_differentiated() {
            return Ok(false);
        }
        Ok(slices(file, context)? > 1 && file.model.slices() == 1)
    }

    fn run(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<(), CompileError> {
        let slices = slices(file, context)?;
        file.model = slice(&file.model, slices)?;
        Ok(())
    }
}

/// Slices of a sequence that the configuration's schedule runs.
fn slices(file: &File, context: &Context<'_>) -> Result<u32, CompileError> {
    let request = context.request();
    let (_, pipeline) = pipeline_of(&on_mesh(&file.model, request), request.microbatches)?;
    Ok(pipeline.slices)
}
