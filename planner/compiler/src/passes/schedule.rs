//! `schedule`: orders the actions of every pipeline rank.

use super::on_mesh;
use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use ir::graph::Model;
use ir::schedule::{Action, Schedule};
use ir::text::File;
use scheduler::check;
use scheduler::partition::costs_of;
use scheduler::predict::pipeline_of;

pub(super) struct Order;

impl Pass for Order {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "schedule",
            does: "order every F, I, W on every pipeline rank",
            why_here: "needs the stages' costs",
            reads: Level::Staged,
            writes: Level::Scheduled,
        }
    }

    fn run(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<(), CompileError> {
        let Some(staged) = &file.staged else { return Ok(()) };
        let (model, request) = (&file.model, context.request());
        let (kind, pipeline) = pipeline_of(&on_mesh(model, request), request.microbatches)?;
        for (stage, (ours, ranks)) in staged.stages.iter().zip(pipeline.owners()).enumerate() {
            if ours.ranks != ranks {
                let [is, wanted] =
                    [&ours.ranks, &ranks].map(|ranks| ranks.iter().map(u32::to_string).collect::<Vec<_>>().join("+"));
                let why = format!("stage {stage} is on rank {is}, but `{}` places it on rank {wanted}", kind.name);
                return Err(CompileError::Schedule(why));
            }
        }
        check_slices(model, pipeline.slices)?;
        let made = kind.make(&costs_of(staged, context.costs(model)), &pipeline);
        file.schedule = Some(made.map_err(|why| CompileError::Schedule(why.to_string()))?);
        Ok(())
    }

    fn verify(&self, file: &File, context: &mut Context<'_>) -> Result<(), CompileError> {
        let (Some(staged), Some(schedule)) = (&file.staged, &file.schedule) else { return Ok(()) };
        check_slices(&file.model, slices_of(schedule))?;
        let microbatches = context.request().microbatches;
        let costs = costs_of(staged, context.costs(&file.model));
        let found = check::check(schedule, &costs, microbatches, |stage, mb| {
            staged.stages.get(stage as usize).map_or(u32::MAX, |stage| stage.rank(mb, microbatches))
        });
        if found.is_empty() { Ok(()) } else { Err(CompileError::Rows(found)) }
    }
}

/// The slices of a sequence that a schedule runs.
fn slices_of(schedule: &Schedule) -> u32 {
    let items = schedule.rows.iter().flatten().flat_map(Action::items);
    items.filter_map(|item| item.slice).max().map_or(1, |last| last.saturating_add(1))
}

fn check_slices(model: &Model, wanted: u32) -> Result<(), CompileError> {
    let has = model.slices();
    if wanted == has { Ok(()) } else { Err(CompileError::Slices { wanted, has }) }
}
