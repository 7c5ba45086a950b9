//! Subcommand `schedule`: takes a request, returns a report and a timeline.

use ir::schedule::{Action, Kind, Schedule};
use scheduler::actions::split_backward;
use scheduler::bound::{Bound, lower_bound_within, meets};
use scheduler::check::{Invariant, Violation, check_pipeline};
use scheduler::costs::{CostsError, CostsFile, StageCosts};
use scheduler::decimal::precise;
use scheduler::limits::{first_below, least_limit};
use scheduler::optimal::{self, Answer};
use scheduler::placement::{Pipeline, Placement};
use scheduler::problem::{Backward, Objective, Patience, Problem};
use scheduler::schedules::{OrderBasis, ScheduleError, ScheduleKind, UnknownSchedule, find, solve};
use scheduler::simulate::{Sends, SimulateError, Timeline, can_run, simulate};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Request for a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleRequest {
    /// Name of the schedule in [`scheduler::schedules::SCHEDULES`].
    pub kind: String,
    /// Pipeline ranks.
    pub stages: u32,
    /// Micro-batches of a step.
    pub microbatches: u32,
    /// Stages per rank; `None`: as the kind has it.
    pub chunks: Option<u32>,
    /// Micro-batches that go through a chunk before the rank turns to its next one; `None`: as the kind has it.
    pub group: Option<u32>,
    /// Slices of each micro-batch's sequence, whose costs are those of a slice; `None`: as the kind has it.
    pub slices: Option<u32>,
    /// Placement of stages on ranks; `None`: that of the kind.
    pub placement: Option<Placement>,
    /// True if I and W are run as one.
    pub backward: Backward,
    /// The objective of the lower bound.
    pub objective: Objective,
    /// Seconds after which the answer is there, a search ending with the best so far; `None`: after a fixed amount of work.
    pub deadline: Option<f64>,
    /// How ranks send: an order that cannot be run so is an error. Times are those of asynchronous sends.
    pub sends: Sends,
    /// Costs of the stages and memory limits of the ranks.
    pub costs: CostsFile,
}

impl Default for ScheduleRequest {
    /// 1F1B on one rank with one micro-batch, at unit costs.
    fn default() -> ScheduleRequest {
        ScheduleRequest {
            kind: "1f1b".into(),
            stages: 1,
            microbatches: 1,
            chunks: None,
            group: None,
            slices: None,
            placement: None,
            backward: Backward::default(),
            objective: Objective::default(),
            deadline: None,
            sends: Sends::default(),
            costs: CostsFile::default(),
        }
    }
}

/// The answer, with the fields of `schedule --format json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleReport {
    /// Name of the schedule.
    pub kind: String,
    /// Pipeline ranks.
    pub stages: u32,
    /// Micro-batches of a step.
    pub microbatches: u32,
    /// Stages per rank.
    pub chunks: u32,
    /// The objective of `lower_bound`, `gap` and `optimal`.
    pub objective: Objective,
    /// End of the last action, from time 0.
    pub makespan: f64,
    /// The longest time any rank takes from its first start to its last end.
    pub span: f64,
    /// (makespan - busy) / makespan, busy being the work of the busiest rank.
    pub bubble: f64,
    /// (span - busy) / span.
    pub bubble_span: f64,
    /// No order on this placement has a smaller objective. Backwards may be split, unless the request fuses them.
    pub lower_bound: f64,
    /// (objective - lower_bound) / objective.
    pub gap: f64,
    /// True if the bound is met.
    pub optimal: bool,
    /// Origin of the order: `rule`, or in a search the rule or the engine.
    pub engine: String,
    /// True if the order holds the memory limit, and is proven to be the best.
    pub status: Status,
    /// The unit of times.
    pub unit: String,
    /// True if the same request always gives the same order.
    pub deterministic: bool,
    /// True if a search ended before it had tried all candidates, at its deadline or at its limit of work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// The most memory each rank holds.
    pub peak_memory: Vec<f64>,
    /// Violations of the memory limit; empty if there are none. Not a field of the JSON.
    #[serde(skip)]
    pub over_limit: Vec<String>,
    /// If the memory limit is exceeded: the least limits of the ranks with which some order exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_limit: Option<Vec<f64>>,
    /// Each rank's row as `0F0`, `0I0`, without what ends the step.
    pub order: Vec<Vec<String>>,
    /// How long the answer took, in seconds.
    pub seconds: f64,
}

impl ScheduleReport {
    /// The name and the value of what is to be small.
    pub fn reached(&self) -> (&'static str, f64) {
        match self.objective {
            Objective::Makespan => ("makespan", self.makespan),
            Objective::Span => ("span", self.span),
        }
    }
}

/// Status of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It meets the lower bound.
    Optimal,
    /// It can be run; a better one may exist.
    Feasible,
    /// A rank would hold more than its limit.
    Infeasible,
}

impl Status {
    /// Status of an order that keeps the limits or not, and is proven to be the best or not.
    pub(crate) fn of(holds: bool, optimal: bool) -> Status {
        match (holds, optimal) {
            (false, _) => Status::Infeasible,
            (true, true) => Status::Optimal,
            (true, false) => Status::Feasible,
        }
    }
}

/// Why there is no schedule.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// There is no such kind.
    #[error(transparent)]
    UnknownKind(#[from] UnknownSchedule),
    /// A number that cannot be.
    #[error("{0}")]
    Request(String),
    /// The costs are wrong.
    #[error(transparent)]
    Costs(#[from] CostsError),
    /// The kind cannot be had for these numbers.
    #[error("`{kind}` cannot be had: {why}")]
    Constraint {
        /// The kind.
        kind: &'static str,
        /// The constraint that fails.
        why: String,
    },
    /// The rows made cannot be run: a fault of the kind's rule.
    #[error("bug in schedule `{kind}`: {source}")]
    Stuck {
        /// The kind.
        kind: &'static str,
        /// The error of the simulator.
        source: SimulateError,
    },
    /// The rows cannot be run with sends that wait for their receivers.
    #[error("`{kind}` cannot be run with {sends} sends: {source}")]
    Sends {
        /// The kind.
        kind: &'static str,
        /// How the ranks send.
        sends: Sends,
        /// Their positions.
        source: SimulateError,
    },
    /// The rows made are wrong: a fault of the kind's rule.
    #[error("bug in schedule `{kind}`:{}", lines(.violations))]
    Wrong {
        /// The kind.
        kind: &'static str,
        /// The findings of the checker.
        violations: Vec<Violation>,
    },
}

impl Error {
    fn constraint(kind: &ScheduleKind, why: impl fmt::Display) -> Error {
        Error::Constraint { kind: kind.name, why: why.to_string() }
    }
}

fn lines(violations: &[Violation]) -> String {
    violations.iter().map(|violation| format!("\n  {violation}")).collect()
}

/// The most stages times micro-batches times slices, so that a slip of the pen does not take all memory.
const MOST_CELLS: u64 = 1 << 20;

/// Seconds per action to check, simulate and report an order once it is found.
const AFTER_SEARCH: f64 = 2e-6;

/// The longest search, in seconds: a week.
const LONGEST: f64 = 604_800.0;

/// Makes, checks and simulates the schedule asked for.
///
/// An order that does not hold the memory limit is an answer with status `infeasible`, not an error.
pub fn report(request: &ScheduleRequest) -> Result<(ScheduleReport, Timeline), Error> {
    report_telling(request, &|_| {})
}

/// As [`report`]; a search reports its progress.
pub fn report_telling(
    request: &ScheduleRequest,
    log: &(dyn Fn(&str) + Sync),
) -> Result<(ScheduleReport, Timeline), Error> {
    let clock = Instant::now();
    let kind = find(&request.kind)?;
    let pipeline = pipeline(request, kind)?;
    let costs = request.costs.resolve(pipeline.stages(), request.stages)?;
    let deadline = request.deadline.map(|seconds| {
        let actions =
            f64::from(pipeline.stages()) * f64::from(pipeline.microbatches) * f64::from(pipeline.slices) * 3.0;
        clock + Duration::from_secs_f64((seconds - actions * AFTER_SEARCH).max(seconds / 4.0))
    });
    let (objective, backward) = (request.objective, request.backward);
    let problem = Problem { costs: &costs, pipeline: &pipeline, objective, backward, deadline };
    let made = make(request, kind, &problem, log)?;
    let timeline = simulate(&made.schedule, &costs).map_err(|source| Error::Stuck { kind: kind.name, source })?;
    let mut over_limit: Vec<String> = below_least(&costs, &pipeline).into_iter().collect();
    over_limit.extend(check_rows(kind, &pipeline, &made.schedule, &costs)?.iter().map(Violation::to_string));
    let sends = request.sends;
    can_run(&made.schedule, &costs, sends).map_err(|source| Error::Sends { kind: kind.name, sends, source })?;

    let reached = match objective {
        Objective::Makespan => timeline.makespan,
        Objective::Span => timeline.span,
    };
    let lower_bound = made.bound.unwrap_or_else(|| bound(&problem, reached, over_limit.is_empty()));
    let gap = if reached > 0.0 { ((reached - lower_bound) / reached).max(0.0) } else { 0.0 };
    let optimal = over_limit.is_empty() && (made.optimal || meets(reached, lower_bound, &costs, &pipeline));
    let report = ScheduleReport {
        kind: kind.name.into(),
        stages: request.stages,
        microbatches: request.microbatches,
        chunks: pipeline.chunks,
        objective: request.objective,
        makespan: timeline.makespan,
        span: timeline.span,
        bubble: timeline.bubble(),
        bubble_span: timeline.bubble_span(),
        lower_bound,
        gap,
        optimal,
        engine: made.engine.into(),
        status: Status::of(over_limit.is_empty(), optimal),
        deterministic: made.deterministic,
        stopped: made.stopped && !optimal,
        peak_memory: timeline.peak_memory.clone(),
        least_limit: (!over_limit.is_empty()).then(|| least_limit(&costs, &pipeline)),
        unit: costs.unit,
        over_limit,
        order: made.schedule.rows.iter().map(|row| printed(row)).collect(),
        seconds: clock.elapsed().as_secs_f64(),
    };
    Ok((report, timeline))
}

fn pipeline(request: &ScheduleRequest, kind: &ScheduleKind) -> Result<Pipeline, Error> {
    let numbers = [
        ("stages", Some(request.stages)),
        ("microbatches", Some(request.microbatches)),
        ("chunks", request.chunks),
        ("group", request.group),
        ("slices", request.slices),
    ];
    if let Some((name, _)) = numbers.into_iter().find(|&(_, number)| number == Some(0)) {
        return Err(Error::Request(format!("`{name}` is 0, but must be 1 or more")));
    }
    if let Some(seconds) = request.deadline.filter(|seconds| !(0.0..=LONGEST).contains(seconds)) {
        return Err(Error::Request(format!("`deadline` is {seconds}, but must lie between 0 and {LONGEST} seconds")));
    }
    let placement = request.placement.unwrap_or(kind.placement);
    if !kind.supports_placement(placement) {
        return Err(Error::constraint(kind, ScheduleError::Placement { own: kind.placement, given: placement }));
    }
    let plain = if placement == kind.placement {
        let plain = kind.pipeline(request.stages, request.chunks, request.microbatches);
        plain.map_err(|why| Error::constraint(kind, why))?
    } else {
        let chunks = request.chunks.unwrap_or(placement.chunks());
        Pipeline { chunks, ..Pipeline::new(placement, request.stages, request.microbatches) }
    };
    if matches!(placement, Placement::Chain | Placement::Bidirectional) && plain.chunks != placement.chunks() {
        let (own, chunks) = (placement.chunks(), plain.chunks);
        let why = format!("a {placement} has {own} chunks per rank, not {chunks}");
        return Err(Error::constraint(kind, why));
    }
    let pipeline = kind.choose(plain, request.group, request.slices);
    let pipeline = pipeline.map_err(|why| Error::constraint(kind, why))?;
    let (stages, microbatches, slices) = (pipeline.stages(), pipeline.microbatches, pipeline.slices);
    if u64::from(stages).saturating_mul(microbatches.into()).saturating_mul(slices.into()) > MOST_CELLS {
        let slices = if slices > 1 { format!(" x {slices} slices") } else { String::new() };
        return Err(Error::Request(format!(
            "{stages} stages x {microbatches} micro-batches{slices} are more than {MOST_CELLS}"
        )));
    }
    Ok(pipeline)
}

/// A schedule, and what is known of it.
struct Made {
    schedule: Schedule,
    /// Origin of the order.
    engine: &'static str,
    /// No order has a smaller objective; `None`: as the bounds for all schedules have it.
    bound: Option<f64>,
    optimal: bool,
    deterministic: bool,
    /// A search has left candidates out.
    stopped: bool,
}

impl Made {
    /// Order shown if none keeps the limits; its peaks show the excess.
    fn least(problem: &Problem) -> Made {
        let schedule = optimal::least_memory(problem);
        Made { schedule, engine: "none", bound: None, optimal: false, deterministic: true, stopped: false }
    }
}

fn make(
    request: &ScheduleRequest,
    kind: &ScheduleKind,
    problem: &Problem,
    log: &(dyn Fn(&str) + Sync),
) -> Result<Made, Error> {
    if kind.order == OrderBasis::Solved {
        return Ok(match solve(problem, log) {
            Ok(Answer { schedule, bound, engine, optimal, deterministic, .. }) => {
                Made { schedule, engine, bound: Some(bound), optimal, deterministic, stopped: !optimal }
            }
            Err(_) => Made::least(problem),
        });
    }
    let stopped = AtomicBool::new(false);
    let patience = Patience { deadline: problem.deadline, log, stopped: Some(&stopped) };
    let schedule = match kind.make_within(problem.costs, problem.pipeline, &patience) {
        Ok(schedule) => schedule,
        Err(_) if below_least(problem.costs, problem.pipeline).is_some() => return Ok(Made::least(problem)),
        Err(why) => return Err(Error::constraint(kind, why)),
    };
    let schedule = match request.backward {
        Backward::Split => split_backward(schedule),
        Backward::Fused if splits_backwards(&schedule) => {
            return Err(Error::constraint(kind, "it splits backwards, which are to be fused"));
        }
        Backward::Fused | Backward::Auto => schedule,
    };
    let deterministic = problem.deadline.is_none() || !kind.searches();
    Ok(Made { schedule, engine: "rule", bound: None, optimal: false, deterministic, stopped: stopped.into_inner() })
}

fn splits_backwards(schedule: &Schedule) -> bool {
    schedule.rows.iter().flatten().flat_map(Action::items).any(|item| item.kind == Kind::I)
}

/// The best bound there is; where the limits are broken, one without regard to them.
fn bound(problem: &Problem, reached: f64, holds: bool) -> f64 {
    if holds && problem.pipeline.slices == 1 {
        return optimal::lower_bound(problem, reached);
    }
    let fused = problem.backward == Backward::Fused;
    let Bound { makespan, span } = lower_bound_within(problem.costs, problem.pipeline, fused, problem.deadline);
    match problem.objective {
        Objective::Makespan => makespan,
        Objective::Span => span,
    }
}

/// Error if no order keeps the memory limit.
fn below_least(costs: &StageCosts, pipeline: &Pipeline) -> Option<String> {
    let least = least_limit(costs, pipeline);
    let rank = first_below(&least, costs.limit.as_deref())?;
    Some(format!("rank {rank}: no order holds less than {} at a time", precise(least[rank])))
}

/// Positions at which the rows exceed the memory limit; any other violation is an error.
fn check_rows(
    kind: &ScheduleKind,
    pipeline: &Pipeline,
    schedule: &Schedule,
    costs: &StageCosts,
) -> Result<Vec<Violation>, Error> {
    let violations = check_pipeline(schedule, costs, pipeline);
    let (memory, wrong): (Vec<_>, Vec<_>) = violations.into_iter().partition(|v| v.invariant == Invariant::Memory);
    if wrong.is_empty() { Ok(memory) } else { Err(Error::Wrong { kind: kind.name, violations: wrong }) }
}

fn printed(row: &[Action]) -> Vec<String> {
    let staged = row.iter().filter(|action| action.items().all(|item| item.stage.is_some()));
    staged.map(Action::to_string).collect()
}

#[cfg(test)]
mod tests;
