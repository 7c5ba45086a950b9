//! A plan as the text of its model: every tensor with its sharding, and the collectives that follow.

use super::brief::differences;
use crate::error::Error;
use crate::plan::Infeasible;
use crate::search::keys;
use compiler::compile::{CompileRequest, compile_source};
use compiler::model_source::ModelSource;
use compiler::parallel;
use estimator::EstimateReport;
use ir::text::{self, File};
use support::units::gib;

/// Output of `compile` after the planner's last pass. Options other than shardings are in a comment: they are estimated, not
/// compiled.
///
/// # Errors
/// The model no longer exists, or cannot be planned under the configuration.
pub fn annotated(plan: &EstimateReport) -> Result<String, Error> {
    let last = planner::PASSES.last().map(|pass| pass.name);
    let (note, file) = compiled(plan, last)?;
    Ok(note + &text::print(&file))
}

/// The model of a plan compiled up to a pass, or to its program, and a comment with the options that are not compiled.
///
/// # Errors
/// As [`annotated`].
pub fn compiled(plan: &EstimateReport, stop_after: Option<&str>) -> Result<(String, File), Error> {
    // Without options that shard no tensor, or that the compiler does not support.
    let sharded = keys::compiled(&plan.parallel);
    let order = CompileRequest {
        model: plan.inputs.model.clone(),
        parallel: parallel::print(&sharded),
        seq: plan.inputs.seq,
        global_batch: Some(plan.inputs.global_batch),
        precision: if plan.inputs.precision == "f32" { "f32" } else { "bf16" }.to_string(),
        cluster: Some(plan.inputs.cluster.clone()),
        stack: Some(plan.inputs.stack.clone()),
        ..CompileRequest::default()
    };
    let file = compile_source(&ModelSource::open(&order.model)?, &order, stop_after, &mut |_, _| ())?;
    let beyond = differences(&sharded, &plan.parallel);
    let note = if beyond.is_empty() { String::new() } else { format!("// Beyond the shardings: {beyond}\n") };
    Ok((note, file))
}

/// Annotated text of an infeasible request: the configuration of least memory, with a note in its head.
///
/// # Errors
/// No such configuration is known, the model no longer exists, or cannot be planned under the configuration.
pub fn annotated_closest(answer: &Infeasible) -> Result<String, Error> {
    let Some(closest) = &answer.closest else {
        return Err(if answer.is_known() { Error::SmallestUnknown } else { Error::NoneFound });
    };
    let needs = gib(closest.predicted.fullest().device);
    let fits = if answer.is_known() { "Nothing fits." } else { "It is not known yet whether anything fits." };
    let least = if answer.closest_is_least {
        "the smallest configuration"
    } else {
        "the smallest configuration of those evaluated"
    };
    Ok(format!("// {fits} This is {least}: {needs} on its worst rank.\n") + &annotated(closest)?)
}
