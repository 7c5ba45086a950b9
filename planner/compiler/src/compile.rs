//! From a user's request to a compilation: opens the model for its batch, and gives each error its code.

use crate::error::Error;

use crate::batch::{ConfigOptions, microbatches};
use crate::compile_error::CompileError;
use crate::compile_target::CompileTarget;
use crate::model_source::ModelSource;
use crate::parallel::slices;
use crate::pass_manager::PassManager;
use crate::pipeline::{self, Listeners, Observer, PipelineOptions};
use crate::precision::precision;
use crate::request_error::RequestError;
use crate::within;
use cost::PROGRAM;
use ir::diag::Diagnostic;
use ir::graph::Model;
use ir::models::Batch;
use ir::optimizer::Optimizer;
use ir::options::{ParallelConfig, PlanOptions, Sharding};
use ir::schedule::Schedule;
use ir::text::File;
use ir::types::DType;
use planner::PlanError;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Tokens per sequence of a model that does not state its own, if none are asked for.
pub const DEFAULT_SEQ: u64 = 128;

/// A request to compile. Fields that are left out have their defaults.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompileRequest {
    /// A preset, a `config.json`, or a `.ir` file of any level.
    pub model: String,
    /// The configuration in the grammar of [`parallel`](crate::parallel).
    #[serde(alias = "mesh")]
    pub parallel: String,
    /// Sequences per micro-batch and data-parallel rank; overrides `parallel`.
    pub mbs: Option<u64>,
    /// Sequence parallelism; overrides `parallel`.
    pub sp: Option<bool>,
    /// ZeRO stage; overrides `parallel`.
    pub zero: Option<u8>,
    /// Pipeline schedule; overrides `parallel`.
    pub schedule: Option<String>,
    /// Tokens per sequence, for a model that does not state its own.
    pub seq: u64,
    /// Sequences per step; if left out, two micro-batches per pipeline stage.
    pub global_batch: Option<u64>,
    /// The type of parameters and compute.
    pub precision: String,
    /// True to leave statements as they are instead of grouping them.
    pub no_fusion: bool,
    /// Method for the shardings that the file leaves open: `rules`, or `auto` for the least seconds of a step within the
    /// memory of a device.
    pub shard: String,
    /// Bytes of a device under `auto`; if left out, what the cluster's devices have.
    pub memory: Option<u64>,
    /// Seconds that the search of `auto` may take; if left out, a fixed amount of work.
    pub deadline: Option<f64>,
    /// The cluster whose times decide, a name or a TOML file; if left out, `cpu`.
    pub cluster: Option<String>,
    /// The stack by which it runs, a name or a TOML file; if left out, Meshwright's own on the cluster.
    pub stack: Option<String>,
}

impl Default for CompileRequest {
    fn default() -> CompileRequest {
        CompileRequest {
            model: String::new(),
            parallel: String::new(),
            mbs: None,
            sp: None,
            zero: None,
            schedule: None,
            seq: DEFAULT_SEQ,
            global_batch: None,
            precision: "f32".into(),
            no_fusion: false,
            shard: "rules".into(),
            memory: None,
            deadline: None,
            cluster: None,
            stack: None,
        }
    }
}

impl CompileRequest {
    /// The configuration: the text, overridden by the separate fields; one sequence per micro-batch by default.
    ///
    /// # Errors
    /// It cannot be.
    pub fn parallel(&self) -> Result<ParallelConfig, RequestError> {
        let (text, schedule) = (self.parallel.as_str(), self.schedule.as_deref());
        ConfigOptions { text, mbs: self.mbs, sp: self.sp, zero: self.zero, schedule }.resolve(|_| 1)
    }
}

/// Compiles the model of a source as asked, with the default optimizer.
///
/// # Errors
/// The model is wrong, or cannot be had so.
pub fn compile_source(
    source: &ModelSource,
    request: &CompileRequest,
    stop_after: Option<&str>,
    observer: &mut Observer<'_>,
) -> Result<File, Error> {
    let listeners = Listeners { observer, watch: &mut |_| {} };
    compile_source_with(&mut PassManager::standard(), source, request, stop_after, listeners)
}

/// Compiles by a list of passes, which may have passes of the caller.
///
/// # Errors
/// As [`compile_source`], and what the caller's passes refuse.
pub fn compile_source_with(
    passes: &mut PassManager<'_>,
    source: &ModelSource,
    request: &CompileRequest,
    stop_after: Option<&str>,
    listeners: Listeners<'_, '_>,
) -> Result<File, Error> {
    let target = CompileTarget::of(request)?;
    let precision = precision(&request.precision)?;
    let parallel = request.parallel()?;
    let file = open(source, &parallel, request.seq, precision.dtype)?;
    precision.check(&file.model, &request.precision)?;
    let microbatches = request_microbatches(request, &file, &parallel)?;
    let options = PipelineOptions {
        microbatches,
        options: plan_options(request, parallel, microbatches)?,
        optimizer: Optimizer::default(),
        quantisation: precision.quantisation,
        fusion: !request.no_fusion,
        stop_after: stop_after.map(str::to_string),
    };
    let compiled = within::compile(passes, file, &options, &target.platform(), listeners);
    compiled.map_err(|error| told(source, error))
}

/// Checks that a text compiles as it is: on one device, or on the mesh that it states.
///
/// # Errors
/// As [`compile_source`].
pub fn check_text(source: &ModelSource) -> Result<(), Error> {
    let ModelSource::Text { file, .. } = source else { return Ok(()) };
    let request = CompileRequest::default();
    let parallel = request.parallel()?;
    let microbatches = request_microbatches(&request, file, &parallel)?;
    let options = PipelineOptions {
        microbatches,
        options: plan_options(&request, parallel, microbatches)?,
        optimizer: Optimizer::default(),
        quantisation: None,
        fusion: false,
        stop_after: Some("codegen".to_string()),
    };
    compile(source, file.as_ref().clone(), &options, &mut |_, _| ()).map(drop)
}

/// Options of the planner that a request gives.
fn plan_options(
    request: &CompileRequest,
    parallel: ParallelConfig,
    microbatches: u32,
) -> Result<PlanOptions, RequestError> {
    match request.shard.as_str() {
        "rules" if request.deadline.is_some() => Err(RequestError::DeadlineWithoutSearch),
        "rules" => Ok(PlanOptions::of(parallel)),
        "auto" if parallel.sp => Err(RequestError::SequenceParallelWithSearch),
        "auto" => {
            let (memory, deadline) = (request.memory, request.deadline.map(deadline).transpose()?);
            Ok(PlanOptions {
                sharding: Sharding::Auto { memory, microbatches, deadline },
                ..PlanOptions::auto(parallel, None, 1)
            })
        }
        other => Err(RequestError::UnknownShard { shard: other.to_string() }),
    }
}

fn deadline(seconds: f64) -> Result<Duration, RequestError> {
    let deadline = Duration::try_from_secs_f64(seconds).ok().filter(|deadline| !deadline.is_zero());
    deadline.ok_or(RequestError::CompileDeadline { seconds })
}

/// The model for the configuration's micro-batches, at the level of its source. If no token is dropped, each of the ranks that share a
/// sequence routes its own tokens.
///
/// # Errors
/// The model cannot have this batch.
pub fn open(source: &ModelSource, parallel: &ParallelConfig, seq: u64, dtype: DType) -> Result<File, Error> {
    if let ModelSource::Text { file, .. } = source {
        return Ok(file.as_ref().clone());
    }
    let batch = Batch { batch: parallel.dp.saturating_mul(parallel.mbs), seq, dtype };
    let groups = if source.is_dropless() { routing_groups(parallel) } else { 1 };
    Ok(source.routed_in(groups, seq).model(&batch)?.into())
}

/// Ranks that share a sequence; 1 if sequences are run in slices, which divide the tokens otherwise.
fn routing_groups(parallel: &ParallelConfig) -> u64 {
    if slices(parallel) > 1 { 1 } else { parallel.sequence_ranks() }
}

/// Compiles an opened file; errors show the lines of its source.
///
/// # Errors
/// The model is wrong, the request does not fit it, or a checker finds a fault of ours.
pub fn compile(
    source: &ModelSource,
    file: File,
    request: &PipelineOptions,
    observer: &mut Observer<'_>,
) -> Result<File, Error> {
    pipeline::compile(file, request, &PROGRAM, observer).map_err(|error| told(source, error))
}

/// The number of micro-batches: that of a schedule in the file, else the global batch over the sequences of one.
fn request_microbatches(request: &CompileRequest, file: &File, parallel: &ParallelConfig) -> Result<u32, RequestError> {
    if let Some(schedule) = &file.schedule {
        return Ok(microbatches_of(schedule));
    }
    let pipeline = file.model.mesh.pipeline().map_or(parallel.pp, |axis| file.model.mesh.axes[axis].size);
    let Some(global_batch) = request.global_batch else {
        return Ok(u32::try_from(pipeline.saturating_mul(2)).unwrap_or(u32::MAX));
    };
    match sequences(&file.model) {
        Some(batch) => microbatches(global_batch, batch),
        None => Ok(1),
    }
}

/// Sequences of a micro-batch, over all ranks: the first dim of the model's inputs.
fn sequences(model: &Model) -> Option<u64> {
    model.inputs.first()?.ty.dims.first().map(|dim| dim.size)
}

fn microbatches_of(schedule: &Schedule) -> u32 {
    let items = schedule.rows.iter().flatten().flat_map(|action| action.items());
    items.filter_map(|item| item.microbatch).max().unwrap_or(0).saturating_add(1)
}

/// Converts an error: for a text of the user an input error, for a built-in model an internal error.
fn told(source: &ModelSource, error: CompileError) -> Error {
    let pass = match &error {
        CompileError::Fault { pass, why } | CompileError::Plan(PlanError::Fault { pass, why }) => {
            return Error::fault(*pass, why);
        }
        CompileError::Misplanned { pass, found } => return Error::fault(*pass, found),
        CompileError::Differentiate(_) => "differentiate",
        CompileError::Model(_) => "build",
        CompileError::Emit(_) | CompileError::Program(_) => "codegen",
        _ => return error.into(),
    };
    match (source, error) {
        (ModelSource::Config { .. }, error) => Error::fault(pass, error),
        (ModelSource::Text { from, source, .. }, CompileError::Model(diagnostics)) => {
            Error::Diagnostics { file: from.clone(), source: source.clone(), diagnostics }
        }
        (ModelSource::Text { from, source, .. }, CompileError::Differentiate(why)) => {
            let diagnostics = Diagnostic::from(why).into();
            Error::Diagnostics { file: from.clone(), source: source.clone(), diagnostics }
        }
        (_, error) => error.into(),
    }
}
