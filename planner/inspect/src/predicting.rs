//! Predicted step time of a compiled model on a cluster: from the costs of its stages, and from a simulated run of its
//! program.

use compiler::error::Error;
use cost::{Platform, model_flops};
use ir::text::File;
use ir::types::DType;
use scheduler::model_costs;
use scheduler::predict::predict_staged;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use support::files;
use support::table::table;
use support::units::{count, percent, short};
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

/// Step time, speed and MFU, and the shares of the step; ends in a newline.
impl fmt::Display for StepPrediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self))
    }
}

/// Predicts a step of a file at the level of programs on the devices of a platform, and shows it in time.
///
/// ```
/// use compiler::compile::{CompileRequest, compile_source};
/// use compiler::model_source::ModelSource;
/// use cost::PROGRAM;
/// use meshwright_inspect::predicting::predict;
///
/// let request = CompileRequest { parallel: "dp=2,pp=2".into(), ..CompileRequest::default() };
/// let file = compile_source(&ModelSource::open("tiny-llama")?, &request, None, &mut |_, _| ())?;
/// let (step, trace) = predict(&file, &PROGRAM)?;
/// assert_eq!((step.devices, step.program_s), (4, trace.seconds));
/// println!("{step}");
/// # Ok::<(), compiler::error::Error>(())
/// ```
///
/// # Errors
/// The file has no program, or its ranks would wait for each other.
pub fn predict(file: &File, platform: &Platform<'_>) -> Result<(StepPrediction, Trace), Error> {
    let (Some(staged), Some(schedule), Some(program)) = (&file.staged, &file.schedule, &file.program) else {
        return Err(Error::fault("predict", "there is no program"));
    };
    let model = &file.model;
    let devices = model.mesh.devices();
    let dtype = model.params.values().next().map_or(DType::F32, |param| param.ty.dtype);
    let recipe = if dtype == DType::F16 { "fp16" } else { "" };
    let cluster = &platform.cluster.for_devices(devices).computing_in(recipe);
    let platform = Platform { cluster, ..*platform };
    let costs = model_costs(model, &platform, program.microbatches, program.has_groups());
    let stages = predict_staged(&costs, staged, schedule);
    let stages = stages.map_err(|why| Error::fault("predict", why))?;
    let trace = simulator::step(model, program, &platform).map_err(|why| Error::fault("simulator", why))?;
    let reads = model.inputs.first().filter(|input| input.ty.dtype == DType::I32);
    let tokens = reads.map(|input| input.ty.elements() * u64::from(program.microbatches));
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

fn text(step: &StepPrediction) -> String {
    let StepPrediction { cluster, devices, microbatches, schedule_s, program_s, ratio, mfu, .. } = step;
    let mut text = format!(
        "cluster   {cluster}, {devices} device{}, {microbatches} micro-batch{}\n\
         stages    {} (stage costs in schedule order, then the update)\n\
         simulated {} (per-rank program; {ratio:.3}x of the stage estimate)\n",
        if *devices == 1 { "" } else { "s" },
        if *microbatches == 1 { "" } else { "es" },
        short(*schedule_s),
        short(*program_s),
    );
    if let (Some(tokens), Some(speed)) = (step.tokens, step.tokens_per_s) {
        text += &format!("speed     {} tokens/s, {} tokens per step\n", count(speed), count(tokens as f64));
    }
    text += &format!("mfu       {:.1} %\n\n", 100.0 * mfu);
    text + &share_table("where the step goes", &step.shares)
}

/// Table of shares, largest first. Shares that round to 0 are left out.
pub fn share_table(of_what: &str, shares: &BTreeMap<String, f64>) -> String {
    let mut shares: Vec<_> = shares.iter().map(|(name, share)| (name, percent(*share), *share)).collect();
    shares.retain(|(_, percent, _)| percent.trim() != "0.0 %");
    shares.sort_by(|a, b| b.2.total_cmp(&a.2));
    let rows: Vec<_> = shares.into_iter().map(|(name, percent, _)| [name.clone(), percent]).collect();
    table([of_what, "share"], &rows)
}
