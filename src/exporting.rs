//! Jobs of plans and estimates, as exports need them.

use crate::error::Error;
use compiler::compile::open;
use compiler::model_source::ModelSource;
use estimator::{EstimateReport, Estimator};
use exports::{Job, stages};
use ir::dim_role::DimRole;
use ir::types::DType;

/// The job of a prediction.
///
/// # Errors
/// The model, the cluster or the stack is not there any more.
pub fn job(estimator: &Estimator, report: &EstimateReport) -> Result<Job, Error> {
    let inputs = &report.inputs;
    let (cluster, stack) = (estimator.cluster(&inputs.cluster)?, estimator.stack(&inputs.stack)?);
    let parallel = report.with_stages();
    let source = ModelSource::open(&inputs.model)?;
    let model = open(&source, &parallel, inputs.seq, DType::F32)?.model;
    let size = |role| model.dim_of(role).map_or(0, |dim| dim.size);
    let memory = &report.predicted.memory_gib;
    Ok(Job {
        model: inputs.model.clone(),
        seq: inputs.seq,
        global_batch: inputs.global_batch,
        precision: inputs.precision.clone(),
        optimizer: inputs.optimizer.clone(),
        stages: stages(&model, &parallel.stages),
        experts: size(DimRole::Experts),
        kv_heads: size(DimRole::KvHeads),
        per_node: cluster.host.as_ref().map_or(cluster.links[0].joins, |host| host.devices),
        tp_overlaps: parallel.tp_overlap.unwrap_or_else(|| stack.hides("tp")),
        dp_overlaps: parallel.dp_overlap.unwrap_or_else(|| stack.hides("dp")),
        predicted: format!(
            "predicted: {} a step, {:.1} of {:.1} GiB on the peak-memory device",
            support::units::time(report.predicted.step_time_s),
            memory.total,
            memory.capacity
        ),
        parallel,
    })
}
