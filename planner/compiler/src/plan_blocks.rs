//! Sharded blocks for those who price configurations: the planner's passes alone, without checkers and observers.

use crate::compile_error::CompileError;
use cost::{PROGRAM, Platform, Routing};
use ir::dim_role::DimRole;
use ir::graph::{Model, Section, SectionKind};
use ir::ops::Collective;
use ir::options::{AnnotationRule, AnnotationTarget, CpKind, ParallelConfig, PlanOptions, Recompute};
use ir::types::Type;
use planner::reshard::{ReshardCache, Site};
use transforms::differentiate::gradients;

/// Plans one micro-batch on the ranks that work on a block together ([`ParallelConfig::together`]), for estimates: the sections
/// F, I and W of every distinct block, sharded, without the work of once a step. No checker runs. The model's batch is that of
/// these ranks: `parallel.mbs` sequences for each data-parallel rank among them. The platform's times choose reshard paths.
///
/// # Errors
/// The model has no gradient, or the configuration does not fit it.
pub fn plan_blocks(model: Model, parallel: &ParallelConfig, platform: &Platform<'_>) -> Result<Model, CompileError> {
    lower_blocks(mark_blocks(model, parallel)?, parallel, platform, &ReshardCache::default())
}

/// The first half of [`plan_blocks`], up to the marks of reshards. Sizes matter only by what divides them until then, so that
/// models of different sizes can share the result.
pub fn mark_blocks(model: Model, parallel: &ParallelConfig) -> Result<Model, CompileError> {
    mark(model, &goal_of_blocks(parallel)?)
}

/// [`mark_blocks`] for the blocks with experts alone. The other blocks keep only their arguments, so a rule states what they would
/// propagate: values between blocks are sharded over dp, as the model's inputs are.
pub fn mark_experts(mut model: Model, parallel: &ParallelConfig) -> Result<Model, CompileError> {
    for block in model.blocks.values_mut().filter(|block| Routing::of(block).is_none()) {
        (block.results, block.sections) = Default::default();
    }
    let mut options = goal_of_blocks(parallel)?;
    options.rules.push(AnnotationRule {
        axis: "dp".to_string(),
        roles: vec![DimRole::Batch],
        on: AnnotationTarget::Values,
    });
    mark(model, &options)
}

fn mark(model: Model, options: &PlanOptions) -> Result<Model, CompileError> {
    let mut model = gradients(model)?;
    // What is done once a step is numbers beside the blocks.
    model.blocks.values_mut().for_each(|block| block[SectionKind::U] = Section::default());
    model.step = None;
    Ok(planner::plan(model, options, &PROGRAM, Some(MARKED), &mut |_, _| {})?)
}

/// The second half of [`plan_blocks`], with the reshard paths that other models have found on the same platform.
pub fn lower_blocks(
    marked: Model,
    parallel: &ParallelConfig,
    platform: &Platform<'_>,
    paths: &ReshardCache,
) -> Result<Model, CompileError> {
    Ok(planner::finish(marked, &goal_of_blocks(parallel)?, platform, paths)?)
}

/// The reshard paths that [`lower_blocks`] takes.
pub fn reshard_paths_of_blocks(
    changes: impl Iterator<Item = [Type; 2]>,
    site: &Site<'_>,
    known: &ReshardCache,
) -> Result<Vec<Vec<Collective>>, CompileError> {
    Ok(planner::reshard_paths(changes, site, known)?)
}

/// The pass that marks reshards.
const MARKED: &str = "reshard";

/// Options that leave recomputation open and have no context parallelism: their costs are added to those of the planned model.
fn goal_of_blocks(parallel: &ParallelConfig) -> Result<PlanOptions, CompileError> {
    let together = parallel.together().map_err(planner::PlanError::from)?;
    Ok(PlanOptions::of(ParallelConfig { recompute: Recompute::Auto, cp_kind: CpKind::AllGather, ..together }))
}
