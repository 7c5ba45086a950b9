//! The whole compiler: takes a model and returns a program for every rank.
//!
//! Levels, each with its own type and text: `Model` (operations, then shardings), `Staged` (partition into stages),
//! `Schedule` (order), `Program` (instructions of each class of ranks). A file at any level resumes from that level.

use codegen::buffers::assign_buffers;
use codegen::{CodegenError, lower};
use cost::{CPU, Cluster, Routing};
use ir::catalogue::Code;
use ir::costs::ModelCosts;
use ir::diag::{Coded, Diagnostics};
use ir::dim_role::DimRole;
use ir::graph::{Model, Section, SectionKind};
use ir::limits;
use ir::mesh::Mesh;
use ir::ops::Collective;
use ir::optimizer::Optimizer;
use ir::options::{AnnotationRule, AnnotationTarget, CpKind, ParallelConfig, PlanOptions, Recompute};
use ir::schedule::{Action, Schedule};
use ir::staged::Staged;
use ir::text::File;
use ir::types::{Dims, Type};
use ir::verify::{self, program::Violation};
use planner::reshard::{ReshardCache, Site};
use planner::shard::Watch;
use scheduler::check;
use scheduler::model_costs;
use scheduler::partition::{PartitionError, costs_of, partition, partition_at, starts_named, starts_of};
use scheduler::predict::{PredictError, pipeline_of};
use scheduler::schedules::{self, UnknownSchedule};
use transforms::differentiate::{DifferentiateError, differentiate, gradients};
use transforms::recompute::{call_variants, recomputed_layers};
use transforms::slices::{SliceError, slice};

/// How a model is to be compiled.
#[derive(Clone, Debug)]
pub struct PipelineOptions {
    /// The configuration and the rules that seed it.
    pub options: PlanOptions,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Micro-batches per step.
    pub microbatches: u32,
    /// The pass after which to stop: one of [`passes`].
    pub stop_after: Option<String>,
}

/// Why a model did not compile.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompileError {
    /// The model itself is wrong.
    #[error(transparent)]
    Model(Diagnostics),
    /// Its sequences cannot be run in slices.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// It has no gradient.
    #[error(transparent)]
    Differentiate(#[from] DifferentiateError),
    /// The configuration does not fit it.
    #[error(transparent)]
    Plan(#[from] planner::PlanError),
    /// It cannot be partitioned into this number of stages.
    #[error(transparent)]
    Cut(#[from] PartitionError),
    /// There is no schedule of the configuration's name.
    #[error(transparent)]
    UnknownSchedule(#[from] UnknownSchedule),
    /// The schedule cannot be made.
    #[error("{0}")]
    Schedule(String),
    /// The model runs other slices of its sequences than the schedule.
    #[error("the schedule splits sequences into {wanted} slices, the model into {has}")]
    Slices {
        /// Slices of the schedule.
        wanted: u32,
        /// Slices of the model.
        has: u32,
    },
    /// More actions than are scheduled.
    #[error("{runs} block instances x {microbatches} micro-batches are more than {most}", most = limits::ACTIONS)]
    TooManyActions {
        /// Runs of blocks of the model.
        runs: u64,
        /// Micro-batches per step.
        microbatches: u32,
    },
    /// The rows of the schedule that the file brings are wrong.
    #[error("invalid schedule: {}", lines(.0))]
    Rows(Vec<check::Violation>),
    /// No program can be made.
    #[error(transparent)]
    Emit(#[from] CodegenError),
    /// The program that the file brings is wrong.
    #[error("invalid program: {}", lines(.0))]
    Program(Vec<Violation>),
    /// The verifiers refuse what a pass has made: an internal error.
    #[error("pass `{pass}` made an invalid result: {found}")]
    Misplanned {
        /// The pass.
        pass: &'static str,
        /// The diagnostics.
        found: Diagnostics,
    },
    /// A checker refuses what a pass has made: an internal error.
    #[error("pass `{pass}` made an invalid result: {why}")]
    Fault {
        /// The pass.
        pass: &'static str,
        /// The findings of the checker.
        why: String,
    },
}

impl From<PredictError> for CompileError {
    fn from(error: PredictError) -> CompileError {
        match error {
            PredictError::UnknownSchedule(unknown) => unknown.into(),
            PredictError::Partition(error) => error.into(),
            PredictError::Schedule(why) => CompileError::Schedule(why),
            PredictError::Simulate(error) => CompileError::Schedule(error.to_string()),
        }
    }
}

impl Coded for CompileError {
    fn code(&self) -> Option<Code> {
        match self {
            CompileError::Model(found) => found.code(),
            CompileError::Slice(error) => error.code(),
            CompileError::Differentiate(error) => error.code(),
            CompileError::Plan(error) => error.code(),
            CompileError::Cut(error) => error.code(),
            CompileError::UnknownSchedule(error) => error.code(),
            CompileError::Schedule(_) | CompileError::Slices { .. } => Some(Code::UnsuitedSchedule),
            CompileError::TooManyActions { .. } => Some(Code::TooManyActions),
            CompileError::Rows(found) => found.first().and_then(Coded::code),
            CompileError::Emit(error) => error.code(),
            CompileError::Program(_) => Some(Code::ProgramInvalid),
            CompileError::Misplanned { .. } | CompileError::Fault { .. } => None,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            CompileError::Model(found) => found.help(),
            CompileError::Slice(error) => error.help(),
            CompileError::Differentiate(error) => error.help(),
            CompileError::Plan(error) => error.help(),
            CompileError::Cut(error) => error.help(),
            CompileError::UnknownSchedule(error) => error.help(),
            CompileError::Schedule(_) => Some("meshwright schedules lists the constraints".to_string()),
            CompileError::Slices { has, .. } => Some(format!(
                "slicing precedes differentiation: give the undifferentiated model, or a schedule with {has} slices"
            )),
            CompileError::TooManyActions { .. } => Some("use larger micro-batches (--mbs)".to_string()),
            CompileError::Rows(found) => found.first().and_then(Coded::help),
            CompileError::Emit(error) => error.help(),
            CompileError::Program(_) => Some("correct the program, or omit it to regenerate it".to_string()),
            CompileError::Misplanned { .. } | CompileError::Fault { .. } => None,
        }
    }
}

/// Told of each level and pass that is reached.
pub type Observer<'a> = dyn FnMut(&'static str, &File) + 'a;

/// A row of the table of passes.
pub struct PassInfo {
    /// Its name.
    pub name: &'static str,
    /// Its effect, in one line.
    pub does: &'static str,
    /// The reason for its place in the order.
    pub why_here: &'static str,
}

/// All passes from a model to its program, in order.
pub fn passes() -> Vec<PassInfo> {
    let row = |name, does, why_here| PassInfo { name, does, why_here };
    let mut rows = vec![
        row(
            "slice",
            "split sequences into the slices of the schedule",
            "first: values passed between slices need gradients",
        ),
        row("differentiate", "add the sections I, W, U and the step graph", "the planner must see all"),
    ];
    rows.extend(planner::PASSES.iter().map(|pass| row(pass.name, pass.does, pass.why_here)));
    rows.push(row("partition", "partition the calls into stages of equal cost", "needs local shapes"));
    rows.push(row("schedule", "order every F, I, W on every pipeline rank", "needs the stages' costs"));
    rows.push(row("codegen", "generate the program of each class of ranks", "needs the schedule"));
    rows.push(row(
        "assign_buffers",
        "assign every tensor an offset in its rank's arena",
        "last: needs the live ranges of all tensors",
    ));
    rows
}

/// From any level to the program, or to the pass that the request stops after.
///
/// # Errors
/// The model is wrong, the options does not fit it, or a checker finds a fault of ours.
pub fn compile(
    file: File,
    request: &PipelineOptions,
    cluster: &Cluster,
    observer: &mut Observer<'_>,
) -> Result<File, CompileError> {
    compile_watched(file, request, cluster, (observer, &mut |_| {}))
}

/// The same; `watch` receives the progress of the search for shardings.
///
/// # Errors
/// As [`compile`].
pub fn compile_watched(
    mut file: File,
    request: &PipelineOptions,
    cluster: &Cluster,
    (observer, watch): (&mut Observer<'_>, &mut Watch<'_>),
) -> Result<File, CompileError> {
    let stop = |pass: &str| request.stop_after.as_deref() == Some(pass);
    schedules::find(&request.options.parallel.schedule)?;
    verify::verify_stated(&file.model).map_err(CompileError::Model)?;
    let stated = file.model.has_mesh && file.model.is_fully_specified();
    if file.schedule.is_none() && !file.model.is_differentiated() {
        file.model = in_slices(file.model, request, observer)?;
    }
    if stop("slice") {
        return Ok(file);
    }
    if !file.model.is_differentiated() {
        file.model = differentiate(file.model, &request.optimizer)?;
        checked("differentiate", &file.model)?;
        observer("differentiate", &file);
    }
    if stop("differentiate") {
        return Ok(file);
    }
    let stop_after = request.stop_after.as_deref();
    let told = (&mut *observer, watch);
    file.model = plan(file.model, &request.options, cluster, stop_after, told).map_err(|error| match error {
        // Where the file states all configurations, the passes could only repair what can be repaired.
        CompileError::Misplanned { found, .. } if stated => CompileError::Model(found),
        error => error,
    })?;
    if stop_after.is_some_and(|name| planner::PASSES.iter().any(|pass| pass.name == name)) {
        return Ok(file);
    }
    check_length(&file.model, request.microbatches)?;
    let mut costs = model_costs(&file.model, cluster, request.microbatches);
    let staged = match file.staged.take() {
        Some(staged) => staged,
        None => cut_model(&mut file.model, request, &mut costs, cluster)?,
    };
    file.staged = Some(staged.clone());
    observer("partition", &file);
    if stop("partition") {
        return Ok(file);
    }
    let schedule = match file.schedule.take() {
        Some(given) => {
            check_slices(&file.model, slices_of(&given))?;
            check_schedule(&staged, &given, request, &costs).map_err(CompileError::Rows)?;
            given
        }
        None => schedule(&file.model, &staged, request, &costs)?,
    };
    file.schedule = Some(schedule.clone());
    observer("schedule", &file);
    if stop("schedule") {
        return Ok(file);
    }
    match file.program.take() {
        Some(given) => {
            verify::program::check(&file.model, &given, None).map_err(CompileError::Program)?;
            file.program = Some(given);
        }
        None => {
            let program = lower(&file.model, &staged, &schedule, request.microbatches, cluster)?;
            found_by("codegen", verify::program::check(&file.model, &program, None))?;
            file.program = Some(program);
            observer("codegen", &file);
        }
    }
    if let Some(program) = file.program.as_mut().filter(|program| !stop("codegen") && !program.has_places()) {
        assign_buffers(&file.model, program, None);
        found_by("assign_buffers", verify::program::check_places(&file.model, program, None))?;
        observer("assign_buffers", &file);
    }
    Ok(file)
}

/// Plans one micro-batch on the ranks that work on a block together ([`ParallelConfig::together`]): the sections F, I and W of
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
        roles: vec![DimRole::Batch],
        on: AnnotationTarget::Values,
    });
    mark(model, &options)
}

fn mark(model: Model, options: &PlanOptions) -> Result<Model, CompileError> {
    let mut model = gradients(model)?;
    // Costs once a step are separate figures of the blocks.
    model.blocks.values_mut().for_each(|block| block[SectionKind::U] = Section::default());
    model.step = None;
    Ok(planner::plan(model, options, &CPU, Some(MARKED), &mut |_, _| {})?)
}

/// The rest of [`plan_blocks`], by ways between configurations that other models have taken.
pub fn lower_blocks(marked: Model, parallel: &ParallelConfig, ways: &ReshardCache) -> Result<Model, CompileError> {
    Ok(planner::finish(marked, &goal_of_blocks(parallel)?, &CPU, ways)?)
}

/// The ways that [`lower_blocks`] takes between configurations.
pub fn reshard_paths_of_blocks(
    changes: impl Iterator<Item = [Type; 2]>,
    mesh: &Mesh,
    dims: &Dims,
    known: &ReshardCache,
) -> Result<Vec<Vec<Collective>>, CompileError> {
    Ok(planner::reshard_paths(changes, &Site { mesh, dims, cluster: &CPU }, known)?)
}

/// The pass that marks changes of configuration.
const MARKED: &str = "reshard";

/// Options without recomputation and context parallelism, whose costs are added to those of the planned model.
fn goal_of_blocks(parallel: &ParallelConfig) -> Result<PlanOptions, CompileError> {
    let together = parallel.together().map_err(planner::PlanError::from)?;
    Ok(PlanOptions::of(ParallelConfig { recompute: Recompute::None, cp_kind: CpKind::AllGather, ..together }))
}

/// Converts findings of the program checker to an error of the pass.
fn found_by(pass: &'static str, checked: Result<(), Vec<Violation>>) -> Result<(), CompileError> {
    checked.map_err(|found| CompileError::Fault { pass, why: lines(&found) })
}

/// The model in the slices that the configuration's schedule runs, unless it is in slices already.
fn in_slices(model: Model, request: &PipelineOptions, observer: &mut Observer<'_>) -> Result<Model, CompileError> {
    let (_, pipeline) = pipeline_of(&on_mesh(&model, request), request.microbatches)?;
    if pipeline.slices == 1 || model.slices() > 1 {
        return Ok(model);
    }
    let sliced = slice(&model, pipeline.slices)?;
    checked("slice", &sliced)?;
    observer("slice", &File { model: sliced.clone(), ..File::default() });
    Ok(sliced)
}

fn plan(
    model: Model,
    options: &PlanOptions,
    cluster: &Cluster,
    stop_after: Option<&str>,
    (observer, watch): (&mut Observer<'_>, &mut Watch<'_>),
) -> Result<Model, CompileError> {
    let mut broken = None;
    let mut check = |pass: &'static str, model: &Model| {
        if broken.is_none() {
            broken = checked(pass, model).err();
            observer(pass, &File { model: model.clone(), ..File::default() });
        }
    };
    let planned = planner::plan_watched(model, options, cluster, stop_after, (&mut check, watch))?;
    broken.map_or(Ok(planned), Err)
}

/// All rows together have a bounded length.
fn check_length(model: &Model, microbatches: u32) -> Result<(), CompileError> {
    let runs = model.calls.iter().map(|call| u64::from(call.instances())).sum();
    if u64::saturating_mul(runs, microbatches.into()) > limits::ACTIONS {
        return Err(CompileError::TooManyActions { runs, microbatches });
    }
    Ok(())
}

fn lines(found: &[impl ToString]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The verifiers run after every pass; what they find is the pass's fault. Until `reshard` has run, operands may be
/// otherwise than their ops need them.
fn checked(pass: &'static str, model: &Model) -> Result<(), CompileError> {
    let laid_out = ["reshard", "collectives", "partition"].contains(&pass);
    let found = if laid_out { verify::verify_planned(model) } else { verify::verify(model) };
    found.map_err(|found| CompileError::Misplanned { pass, found })
}

/// The stages. If the first layers of each are recomputed, its block instances call the variants for which it was partitioned.
fn cut_model(
    model: &mut Model,
    request: &PipelineOptions,
    costs: &mut ModelCosts,
    cluster: &Cluster,
) -> Result<Staged, CompileError> {
    let (_, pipeline) = pipeline_of(&on_mesh(model, request), request.microbatches)?;
    let starts = &request.options.parallel.stages;
    let staged = match starts.is_empty() {
        true => partition(model, &pipeline, costs)?,
        false => partition_at(model, &starts_named(starts, costs), &pipeline, costs)?,
    };
    let Some(layers) = recomputed_layers(model) else { return Ok(staged) };
    let starts = starts_of(&staged);
    call_variants(model, layers, &starts);
    checked("partition", model)?;
    *costs = model_costs(model, cluster, request.microbatches);
    Ok(partition_at(model, &starts, &pipeline, costs)?)
}

/// The configuration with the pipeline ranks of the model's mesh, which the model may state itself.
fn on_mesh(model: &Model, request: &PipelineOptions) -> ParallelConfig {
    let pp = model.mesh.pipeline().map_or(1, |axis| model.mesh.axes[axis].size);
    ParallelConfig { pp, ..request.options.parallel.clone() }
}

fn schedule(
    model: &Model,
    staged: &Staged,
    request: &PipelineOptions,
    costs: &ModelCosts,
) -> Result<Schedule, CompileError> {
    let (kind, pipeline) = pipeline_of(&on_mesh(model, request), request.microbatches)?;
    for (stage, (ours, ranks)) in staged.stages.iter().zip(pipeline.owners()).enumerate() {
        if ours.ranks != ranks {
            let text = |ranks: &[u32]| ranks.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
            let (is, wanted) = (text(&ours.ranks), text(&ranks));
            let why = format!("stage {stage} is on rank {is}, but `{}` places it on rank {wanted}", kind.name);
            return Err(CompileError::Schedule(why));
        }
    }
    check_slices(model, pipeline.slices)?;
    let made = kind.make(&costs_of(staged, costs), &pipeline).map_err(CompileError::Schedule)?;
    check_schedule(staged, &made, request, costs)
        .map_err(|found| CompileError::Fault { pass: "schedule", why: lines(&found) })?;
    Ok(made)
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

fn check_schedule(
    staged: &Staged,
    schedule: &Schedule,
    request: &PipelineOptions,
    costs: &ModelCosts,
) -> Result<(), Vec<check::Violation>> {
    let microbatches = request.microbatches;
    let rank_of =
        |stage: u32, mb: u32| staged.stages.get(stage as usize).map_or(u32::MAX, |s| s.rank(mb, microbatches));
    let found = check::check(schedule, &costs_of(staged, costs), microbatches, rank_of);
    if found.is_empty() { Ok(()) } else { Err(found) }
}
