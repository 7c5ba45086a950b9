//! Predicted step time of a compiled model on a cluster: from the costs of its stages, and from a simulated run of its
//! program.

use compiler::error::Error;
use cost::{Cluster, model_flops};
use ir::text::File;
use ir::types::DType;
use scheduler::model_costs;
use scheduler::predict::predict_staged;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use support::files;
use trace::{Profile, Trace};

/// A step that has not been run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StepPrediction {
    /// `meshwright.predict/1`.
    pub schema: &'static str,
    /// The cluster's name.
    pub cluster: String,
    /// Devices of the mesh.
    pub devices: u64,
    /// Micro-batches of a step.
    pub microbatches: u32,
    /// Tokens of a step; none where the model does not read tokens.
    pub tokens: Option<u64>,
    /// Seconds by the stages' costs and the schedule, in which nothing overlaps within a stage.
    pub schedule_s: f64,
    /// Seconds of the run of the program on clocks.
    pub program_s: f64,
    /// `program_s / schedule_s`
    pub ratio: f64,
    /// By the run of the program.
    pub tokens_per_s: Option<f64>,
    /// Model FLOPs per second and peak of all devices, by the run of the program.
    pub mfu: f64,
    /// Shares of the step, each the mean over the pipeline ranks: kernels by kind, communication that nothing hides by axes,
    /// waiting for other stages, idle. They sum to 1.
    pub shares: BTreeMap<String, f64>,
}

/// Predicts a step of a file at the level of programs, and shows it in time.
///
/// # Errors
/// The file has no program, or its ranks would wait for each other.
pub fn predict(file: &File, cluster: &Cluster) -> Result<(StepPrediction, Trace), Error> {
    let (Some(staged), Some(schedule), Some(program)) = (&file.staged, &file.schedule, &file.program) else {
        return Err(Error::fault("predict", "there is no program"));
    };
    let model = &file.model;
    let costs = model_costs(model, cluster, program.microbatches);
    let stages = predict_staged(&costs, staged, schedule);
    let stages = stages.map_err(|why| Error::fault("predict", why))?;
    let trace = simulator::step(model, program, cluster).map_err(|why| Error::fault("simulator", why))?;
    let reads = model.inputs.first().filter(|input| input.ty.dtype == DType::I32);
    let tokens = reads.map(|input| input.ty.elements() * u64::from(program.microbatches));
    let devices = model.mesh.devices();
    let dtype = model.params.values().next().map_or(DType::F32, |param| param.ty.dtype);
    let peak = cluster.device.flops(dtype) * devices as f64;
    let prediction = StepPrediction {
        schema: "meshwright.predict/1",
        cluster: cluster.name.clone(),
        devices,
        microbatches: program.microbatches,
        tokens,
        schedule_s: stages.seconds,
        program_s: trace.seconds,
        ratio: trace.seconds / stages.seconds,
        tokens_per_s: tokens.map(|tokens| tokens as f64 / trace.seconds),
        mfu: model_flops(model) * f64::from(program.microbatches) / (trace.seconds * peak),
        shares: shares(&trace),
    };
    Ok((prediction, trace))
}

fn shares(trace: &Trace) -> BTreeMap<String, f64> {
    let mut profile = Profile::default();
    profile.add(trace);
    profile.shares()
}

/// Writes a trace for ui.perfetto.dev.
///
/// # Errors
/// The file cannot be written.
pub fn write_trace(trace: &Trace, path: &Path) -> Result<(), Error> {
    files::write(path, |out| trace::write(trace, out)).map_err(|why| Error::file("write", path, &why))
}
