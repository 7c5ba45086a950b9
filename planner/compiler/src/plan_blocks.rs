//! Sharded blocks for those who price configurations: the planner's passes alone, without checkers and observers.

use crate::compile_error::CompileError;
use cost::{CPU, Routing};
use ir::graph::{Model, Section, SectionKind};
use ir::mesh::Mesh;
use ir::ops::Collective;
use ir::options::{AnnotationRule, AnnotationTarget, CpKind, ParallelConfig, PlanOptions, Recompute};
use ir::types::{Dims, Type};
use planner::reshard::{ReshardCache, Site};
use transforms::differentiate::gradients;

/// What one micro-batch asks of the ranks that work on a block together ([`ParallelConfig::together`]): the sections F, I and W of
/// every distinct block, sharded, without what is done once a step. For those who price configurations: no checker runs. The model's
/// batch is that of these ranks, `parallel.mbs` for each of their data-parallel part.
///
/// # Errors
/// The model has no gradient, or the configuration does not fit it.
pub fn plan_blocks(model: Model, parallel: &ParallelConfig) -> Result<Model, CompileError> {
    lower_blocks(mark_blocks(model, parallel)?, parallel, &ReshardCache::default())
}

/// The same as far as changes of configuration are marked and not yet made collectives: until then sizes decide nothing but what
/// divides.
pub fn mark_blocks(model: Model, parallel: &ParallelConfig) -> Result<Model, CompileError> {
    mark(model, &goal_of_blocks(parallel)?)
}

/// The same of the blocks with experts alone; of the others the arguments are left. What these would tell the next blocks is
/// stated: what blocks pass on is shared out among data-parallel ranks as the model's inputs are.
pub fn mark_experts(mut model: Model, parallel: &ParallelConfig) -> Result<Model, CompileError> {
    for block in model.blocks.values_mut().filter(|block| Routing::of(block).is_none()) {
        (block.results, block.sections) = Default::default();
    }
    let mut options = goal_of_blocks(parallel)?;
    options.rules.push(AnnotationRule {
        axis: "dp".to_string(),
        dims: vec!["b".to_string()],
        on: AnnotationTarget::Values,
    });
    mark(model, &options)
}

fn mark(model: Model, options: &PlanOptions) -> Result<Model, CompileError> {
    let mut model = gradients(model)?;
    // What is done once a step is numbers beside the blocks.
    model.blocks.values_mut().for_each(|block| block[SectionKind::U] = Section::default());
    model.step = None;
    Ok(planner::plan(model, options, &CPU, Some(MARKED), &mut |_, _| {})?)
}

/// The rest of [`plan_blocks`], by ways between configurations that other models have taken.
pub fn lower_blocks(marked: Model, parallel: &ParallelConfig, ways: &ReshardCache) -> Result<Model, CompileError> {
    Ok(planner::finish(marked, &goal_of_blocks(parallel)?, &CPU, ways)?)
}

/// The ways that [`lower_blocks`] takes between configurations.
pub fn ways_of_blocks(
    changes: impl Iterator<Item = [Type; 2]>,
    mesh: &Mesh,
    dims: &Dims,
    known: &ReshardCache,
) -> Result<Vec<Vec<Collective>>, CompileError> {
    Ok(planner::ways(changes, &Site { mesh, dims, cluster: &CPU }, known)?)
}

/// The pass that marks changes of configuration.
const MARKED: &str = "reshard";

/// What is computed again and how attention communicates is priced beside the planned model.
fn goal_of_blocks(parallel: &ParallelConfig) -> Result<PlanOptions, CompileError> {
    let together = parallel.together().map_err(planner::PlanError::from)?;
    Ok(PlanOptions::of(ParallelConfig { recompute: Recompute::None, cp_kind: CpKind::AllGather, ..together }))
}
