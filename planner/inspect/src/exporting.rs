//! Exports of plans and estimates: their jobs, and the orders of their pipelines.

use compiler::compile::open;
use compiler::error::Error;
use compiler::model_source::ModelSource;
use compiler::parallel;
use cost::Graphs;
use estimator::{EstimateReport, EstimateRequest, Estimator};
use exports::{Export, Instead, Job, Launch, Size, Target, TorchOrder, stages};
use ir::dim_role::DimRole;
use ir::models::ModelConfig;
use ir::schedule::Schedule;
use ir::types::DType;
use scheduler::simulate::Timeline;
use view::interop::write_csv;
use view::report::{ScheduleReport, ScheduleRequest, report_telling};

/// Writes the configuration of a prediction for a framework.
///
/// # Errors
/// The model, the cluster or the stack is not there any more.
pub fn export(estimator: &Estimator, report: &EstimateReport, target: Target, launch: Launch) -> Result<Export, Error> {
    let mut job = Job { launch, ..job(estimator, report)? };
    if job.traits.launch.graphs == Graphs::Dense && job.experts == 0 {
        let size = size(estimator, report, &Instead::Traits("launch.graphs=none".into()));
        job.launches = size.map_or(0.0, |size| size.seconds / report.predicted.step_time_s);
    }
    if target == Target::TorchPipelining {
        job.order = Some(order(estimator, report)?);
    }
    Ok(exports::export(&job, target, &|instead| size(estimator, report, instead)))
}

/// By how much another way to run a job differs from its prediction; `None` if it cannot be predicted.
fn size(estimator: &Estimator, report: &EstimateReport, instead: &Instead) -> Option<Size> {
    let inputs =
        EstimateRequest { beyond_stack: true, parallel: parallel::print(&report.parallel), ..report.inputs.clone() };
    let request = match instead {
        Instead::Keys(keys) => EstimateRequest { parallel: parallel::pinned(&inputs.parallel, keys), ..inputs },
        Instead::Traits(traits) => EstimateRequest { stack: format!("{}+{traits}", inputs.stack), ..inputs },
        Instead::GradDtype(dtype) => EstimateRequest { grad_dtype: Some(dtype.to_string()), ..inputs },
    };
    let other = estimator.estimate(&request).ok()?;
    let more = other.predicted.fullest().device - report.predicted.fullest().device;
    Some(Size {
        seconds: other.predicted.step_time_s - report.predicted.step_time_s,
        bytes: more * (1u64 << 30) as f64,
    })
}

/// The pipeline of a prediction with the costs of its stages, in ms and GiB, and its order.
///
/// # Errors
/// As [`export`].
pub fn schedule(
    estimator: &Estimator,
    report: &EstimateReport,
) -> Result<(ScheduleRequest, ScheduleReport, Timeline), Error> {
    let request = pipeline(estimator, report)?;
    let (report, timeline) = report_telling(&request, &|_| ()).map_err(Error::of)?;
    Ok((request, report, timeline))
}

fn pipeline(estimator: &Estimator, report: &EstimateReport) -> Result<ScheduleRequest, Error> {
    let parallel = parallel::print(&report.with_stages());
    let asked = EstimateRequest { parallel, gpus: None, ..report.inputs.clone() };
    Ok(estimator.schedule(&asked, u32::MAX)?)
}

/// The order as PyTorch takes it. A schedule that PyTorch cannot run is replaced by 1F1B on the same stages.
fn order(estimator: &Estimator, report: &EstimateReport) -> Result<TorchOrder, Error> {
    let request = pipeline(estimator, report)?;
    let (_, timeline) = report_telling(&request, &|_| ()).map_err(Error::of)?;
    if let Ok(order) = torch_order(&timeline) {
        return Ok(order);
    }
    let is_sliced = request.slices.is_some_and(|slices| slices > 1);
    let kind = if report.stages.len() as u32 > request.stages { "interleaved-1f1b" } else { "1f1b" };
    let why = if is_sliced { "PyTorch passes whole sequences" } else { "PyTorch has a stage on one rank" };
    let kind_of = ScheduleRequest { kind: kind.into(), slices: None, group: None, ..request };
    let (_, timeline) = report_telling(&kind_of, &|_| ()).map_err(Error::of)?;
    let order = torch_order(&timeline).map_err(|why| Error::fault("export", why))?;
    Ok(TorchOrder { instead: Some(format!("{why}: schedule={kind} is nearest, and in the file")), ..order })
}

/// # Errors
/// The order has slices of sequences, or a stage on two ranks.
fn torch_order(timeline: &Timeline) -> Result<TorchOrder, String> {
    let rows = timeline.rows.iter().map(|row| row.iter().map(|slot| slot.action).collect());
    let schedule = Schedule { name: String::new(), rows: rows.collect() };
    let csv = write_csv(&schedule).map_err(|why| why.to_string())?;
    let mut owners: Vec<Option<usize>> = Vec::new();
    for (rank, row) in schedule.rows.iter().enumerate() {
        for stage in row.iter().flat_map(|action| action.items()).filter_map(|item| item.stage) {
            let stage = stage as usize;
            owners.resize(owners.len().max(stage + 1), None);
            if owners[stage].replace(rank).is_some_and(|other| other != rank) {
                return Err(format!("stage {stage} is on two ranks"));
            }
        }
    }
    Ok(TorchOrder { csv, ranks: owners.into_iter().flatten().collect(), instead: None })
}

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
    let config = match source.base() {
        ModelSource::Config { config, .. } => Some(ModelConfig::clone(config)),
        _ => None,
    };
    let size = |role| model.dim_of(role).map_or(0, |dim| dim.size);
    Ok(Job {
        model: inputs.model.clone(),
        adapters: ModelSource::split(&inputs.model).1.map(str::to_string),
        seq: inputs.seq,
        global_batch: inputs.global_batch,
        precision: inputs.precision.clone(),
        optimizer: inputs.optimizer.clone(),
        stages: stages(&model, &parallel.stages),
        sets_stages: !report.parallel.stages.is_empty(),
        experts: size(DimRole::Experts),
        kv_heads: size(DimRole::KvHeads),
        domain: cluster.links[0].joins,
        per_node: cluster.devices_of_node(),
        capacity: config.as_ref().and_then(ModelConfig::capacity),
        config,
        recipe: estimator::recipe(
            &inputs.precision,
            inputs.grad_dtype.as_deref(),
            inputs.master.as_deref(),
            &inputs.optimizer,
            &stack,
        )?,
        documents: !inputs.lengths.is_empty(),
        stack: inputs.stack.clone(),
        traits: stack.traits_without(estimator::refused(&parallel, &stack)),
        capability: cluster.device.capability,
        launch: Launch::default(),
        launches: 0.0,
        predicted: format!(
            "predicted: {} a step, {:.1} of {:.1} GiB on the peak-memory device",
            support::units::time(report.predicted.step_time_s),
            report.predicted.fullest().device,
            report.predicted.memory_gib.capacity
        ),
        parallel,
        order: None,
    })
}
