//! The whole story: a model goes in, a program for every rank comes out.
//!
//! Level to level, each with its own type and text: `Model` (what, then where), `Staged` (in which parts), `Schedule`
//! (when), `Program` (for each class of ranks, what to do). A file that already stands at a level goes on from there.

use cost::Cluster;
use ir::diag::Diagnostics;
use ir::differentiate::{DifferentiateError, differentiate};
use ir::goal::Goal;
use ir::graph::Model;
use ir::optimizer::Optimizer;
use ir::schedule::Schedule;
use ir::staged::Staged;
use ir::text::File;
use ir::verify::{self, program::Violation};
use scheduler::cut::{CutError, cut, cut_at, stage_costs};
use scheduler::emit::{EmitError, emit};
use scheduler::memory::memory;

/// How a model is to be compiled.
#[derive(Clone, Debug)]
pub struct CompileRequest {
    /// The layout and the rules that seed it.
    pub goal: Goal,
    /// What updates the parameters.
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
    #[error("the model is not well formed")]
    Model(Diagnostics),
    /// It has no gradient.
    #[error(transparent)]
    Differentiate(#[from] DifferentiateError),
    /// The layout does not fit it.
    #[error(transparent)]
    Plan(#[from] planner::PlanError),
    /// It cannot be cut into so many stages.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// The schedule cannot be made.
    #[error("{0}")]
    Schedule(String),
    /// No program can be made.
    #[error(transparent)]
    Emit(#[from] EmitError),
    /// A program that a file brings is wrong.
    #[error("the program is wrong\n{0}")]
    Program(String),
    /// A checker refuses what a pass has made: a fault of ours.
    #[error("fault in pass `{pass}`: {why}")]
    Fault {
        /// The pass.
        pass: &'static str,
        /// What the checker found.
        why: String,
    },
}

/// Told of each level and pass that is reached.
pub type Observer<'a> = dyn FnMut(&'static str, &File) + 'a;

/// A row of the table of passes.
pub struct PassInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub does: &'static str,
    /// Why it stands where it stands.
    pub why_here: &'static str,
}

/// All passes from a model to its program, in order.
pub fn passes() -> Vec<PassInfo> {
    let row = |name, does, why_here| PassInfo { name, does, why_here };
    let mut rows =
        vec![row("differentiate", "add the sections I, W, U and the step graph", "first: the planner must see all")];
    rows.extend(planner::PASSES.iter().map(|pass| row(pass.name, pass.does, pass.why_here)));
    rows.push(row("cut", "cut the calls into stages of equal cost", "needs local shapes"));
    rows.push(row("schedule", "order every F, I, W on every pipeline rank", "needs the stages' costs"));
    rows.push(row("emit", "write bodies, rows and classes", "needs all of it"));
    rows.push(row("memory", "give every tensor its place in its rank's arena", "last: needs the lives of all tensors"));
    rows
}

/// From any level to the program, or to the pass that the request stops after.
///
/// # Errors
/// The model is wrong, the goal does not fit it, or a checker finds a fault of ours.
pub fn compile(
    mut file: File,
    request: &CompileRequest,
    cluster: &Cluster,
    observer: &mut Observer<'_>,
) -> Result<File, CompileError> {
    let stop = |pass: &str| request.stop_after.as_deref() == Some(pass);
    verify::verify(&file.model).map_err(CompileError::Model)?;
    if !file.model.is_differentiated() {
        file.model = differentiate(file.model, &request.optimizer)?;
        checked("differentiate", &file.model)?;
        observer("differentiate", &file);
    }
    if stop("differentiate") {
        return Ok(file);
    }
    let stop_after = request.stop_after.as_deref();
    file.model = plan(file.model, &request.goal, stop_after, observer)?;
    if stop_after.is_some_and(|name| planner::PASSES.iter().any(|pass| pass.name == name)) {
        return Ok(file);
    }
    let staged = match file.staged.take() {
        Some(staged) => staged,
        None => cut_model(&file.model, request, cluster)?,
    };
    file.staged = Some(staged.clone());
    observer("cut", &file);
    if stop("cut") {
        return Ok(file);
    }
    let schedule = match file.schedule.take() {
        Some(schedule) => schedule,
        None => schedule(&staged, request)?,
    };
    check_schedule(&staged, &schedule, request)?;
    file.schedule = Some(schedule.clone());
    observer("schedule", &file);
    if stop("schedule") {
        return Ok(file);
    }
    match file.program.take() {
        Some(given) => {
            let broken = verify::program::check(&file.model, &given, None).err();
            broken.map_or(Ok(()), |found| Err(CompileError::Program(lines(&found))))?;
            file.program = Some(given);
        }
        None => {
            let program = emit(&file.model, &staged, &schedule, request.microbatches, cluster)?;
            found_by("emit", verify::program::check(&file.model, &program, None))?;
            file.program = Some(program);
            observer("emit", &file);
        }
    }
    if let Some(program) = file.program.as_mut().filter(|program| !stop("emit") && !program.has_places()) {
        memory(&file.model, program, None);
        found_by("memory", verify::program::check_places(&file.model, program, None))?;
        observer("memory", &file);
    }
    Ok(file)
}

/// What the checker of programs finds is the pass's fault.
fn found_by(pass: &'static str, checked: Result<(), Vec<Violation>>) -> Result<(), CompileError> {
    checked.map_err(|found| CompileError::Fault { pass, why: lines(&found) })
}

fn plan(
    model: Model,
    goal: &Goal,
    stop_after: Option<&str>,
    observer: &mut Observer<'_>,
) -> Result<Model, CompileError> {
    let mut broken = None;
    let planned = planner::plan(model, goal, stop_after, &mut |pass, model| {
        if broken.is_none() {
            broken = checked(pass, model).err();
            observer(pass, &File { model: model.clone(), ..File::default() });
        }
    })?;
    broken.map_or(Ok(planned), Err)
}

fn lines(found: &[impl ToString]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The verifiers run after every pass; what they find is the pass's fault. Until `reshard` has run, operands may lie
/// otherwise than their ops need them.
fn checked(pass: &'static str, model: &Model) -> Result<(), CompileError> {
    let laid_out = ["reshard", "collectives"].contains(&pass);
    let found = if laid_out { verify::verify_planned(model) } else { verify::verify(model) };
    found.map_err(|found| CompileError::Fault { pass, why: found.render("", "") })
}

fn cut_model(model: &Model, request: &CompileRequest, cluster: &Cluster) -> Result<Staged, CompileError> {
    let stages = model.mesh.pipeline().map_or(1, |axis| model.mesh.axes[axis].size);
    let starts = &request.goal.layout.stages;
    if starts.is_empty() {
        return Ok(cut(model, stages as u32, cluster)?);
    }
    let starts: Vec<usize> = std::iter::once(0).chain(starts.iter().map(|&start| start as usize)).collect();
    Ok(cut_at(model, &starts, cluster)?)
}

fn schedule(staged: &Staged, request: &CompileRequest) -> Result<Schedule, CompileError> {
    let name = &request.goal.layout.schedule;
    let known = || scheduler::schedules::SCHEDULES.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
    let kind = scheduler::schedules::find(name)
        .ok_or_else(|| CompileError::Schedule(format!("there is no schedule `{name}`; there are {}", known())))?;
    let ranks = 1 + staged.stages.iter().map(|stage| stage.rank).max().unwrap_or(0);
    kind.make(&stage_costs(staged, 0.0), ranks, request.microbatches).map_err(CompileError::Schedule)
}

fn check_schedule(staged: &Staged, schedule: &Schedule, request: &CompileRequest) -> Result<(), CompileError> {
    let rank_of = |stage: u32, _: u32| staged.stages.get(stage as usize).map_or(u32::MAX, |stage| stage.rank);
    let costs = stage_costs(staged, 0.0);
    let broken = scheduler::check::check(schedule, &costs, request.microbatches, rank_of);
    match broken.first() {
        None => Ok(()),
        Some(first) => Err(CompileError::Fault { pass: "schedule", why: first.text.clone() }),
    }
}
