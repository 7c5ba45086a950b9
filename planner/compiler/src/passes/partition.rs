//! `partition`: partitions the calls into stages.

use super::on_mesh;
use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use ir::graph::Model;
use ir::limits;
use ir::text::File;
use ir::verify;
use scheduler::partition::{partition, partition_at, starts_named, starts_of};
use scheduler::predict::pipeline_of;
use transforms::offload::{offload_layers, offloaded_layers};
use transforms::recompute::{call_variants, recomputed_layers};

pub(super) struct Partition;

impl Pass for Partition {
    fn info(&self) -> PassInfo {
        PassInfo {
            name: "partition",
            does: "partition the calls into stages of equal cost",
            why_here: "needs local shapes",
            reads: Level::Differentiated,
            writes: Level::Staged,
        }
    }

    fn is_needed(&self, file: &File, context: &mut Context<'_>) -> Result<bool, CompileError> {
        check_length(&file.model, context.request().microbatches)?;
        Ok(file.staged.is_none())
    }

    /// If the first layers of each stage are recomputed or offloaded, their calls change.
    fn run(&mut self, file: &mut File, context: &mut Context<'_>) -> Result<(), CompileError> {
        let (request, model) = (context.request(), &mut file.model);
        let (_, pipeline) = pipeline_of(&on_mesh(model, request), request.microbatches)?;
        let (starts, costs) = (&request.options.parallel.stages, context.costs(model));
        let staged = match starts.is_empty() {
            true => partition(model, &pipeline, costs)?,
            false => partition_at(model, &starts_named(starts, costs), &pipeline, costs)?,
        };
        let (recomputed, offloaded) = (recomputed_layers(model), offloaded_layers(model));
        if recomputed.is_none() && offloaded.is_none() {
            file.staged = Some(staged);
            return Ok(());
        }
        let starts = starts_of(&staged);
        recomputed.into_iter().for_each(|layers| call_variants(model, layers, &starts));
        offloaded.into_iter().for_each(|layers| offload_layers(model, layers, &starts));
        context.discard_costs();
        file.staged = Some(partition_at(model, &starts, &pipeline, context.costs(model))?);
        Ok(())
    }

    fn verify(&self, file: &File, _: &mut Context<'_>) -> Result<(), CompileError> {
        match recomputed_layers(&file.model).or(offloaded_layers(&file.model)) {
            Some(_) => verify::verify_planned(&file.model).map_err(CompileError::Model),
            None => Ok(()),
        }
    }
}

/// Bounds the number of actions of all orders.
fn check_length(model: &Model, microbatches: u32) -> Result<(), CompileError> {
    let runs = model.calls.iter().map(|call| u64::from(call.instances())).sum();
    if u64::saturating_mul(runs, microbatches.into()) > limits::ACTIONS {
        return Err(CompileError::TooManyActions { runs, microbatches });
    }
    Ok(())
}
