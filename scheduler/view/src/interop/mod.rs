//! Imported schedules of other tools: parsed, checked like those of this crate, and timed under any costs.

mod comms;
mod csv;
mod order;
mod place;
mod refused;

pub use csv::{read_csv, write_csv};
pub use order::read_report;
pub use refused::InvalidSchedule;

use crate::report::{ScheduleReport, Status};
use ir::schedule::{Action, Schedule};
use place::InferredPlacement;
use scheduler::bound::{Bound, lower_bound, meets};
use scheduler::check::{Invariant, Violation, check};
use scheduler::costs::{CostsError, CostsFile, StageCosts};
use scheduler::problem::Objective;
use scheduler::simulate::{Timeline, simulate};
use std::time::Instant;

/// A schedule as a file has it.
#[derive(Clone, PartialEq, Debug)]
pub struct ImportedSchedule {
    /// Its rows, each with what ends a step.
    pub schedule: Schedule,
    /// Notes on the file besides the rows.
    pub notes: Vec<String>,
}

/// Why a file holds no schedule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// A cell is wrong.
    #[error("line {line}, cell {column}: `{text}` {why}")]
    Cell {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// The text at that place.
        text: String,
        /// The defect.
        why: String,
    },
    /// A message is wrong, or one is missing.
    #[error("line {line}, cell {column}: `{text}` {why}")]
    Message {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// The text at that place.
        text: String,
        /// The defect.
        why: String,
    },
    /// Nothing is computed.
    #[error("there is no action in it")]
    Empty,
    /// The JSON is no report of a schedule.
    #[error("{0}")]
    Report(String),
    /// Something that the form of the file cannot say.
    #[error("micro-batches in slices cannot be written in the form of torch, which has none")]
    Sliced,
}

/// Why a schedule that was read has no timeline.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ImportError {
    /// It is wrong.
    #[error(transparent)]
    InvalidSchedule(#[from] InvalidSchedule),
    /// The costs do not fit it.
    #[error(transparent)]
    Costs(#[from] CostsError),
}

/// Checks an imported schedule and simulates it. A schedule that only exceeds the memory limit is an answer.
///
/// # Errors
/// It cannot be run, does something twice or never, or the costs are not for its stages.
pub fn report_imported(
    foreign: &Schedule,
    costs: &CostsFile,
    objective: Objective,
) -> Result<(ScheduleReport, Timeline), ImportError> {
    let clock = Instant::now();
    let laid = InferredPlacement::of(foreign).map_err(|why| InvalidSchedule::plain(why.to_string()))?;
    let costs = costs.resolve(laid.stages(), laid.ranks())?;
    let violations = check(foreign, &costs, laid.microbatches(), |stage, microbatch| laid.rank(stage, microbatch));
    let (memory, wrong): (Vec<_>, Vec<_>) = violations.into_iter().partition(|v| v.invariant == Invariant::Memory);
    if !wrong.is_empty() {
        return Err(InvalidSchedule::drawn(foreign, &costs, wrong).into());
    }
    let timeline = simulate(foreign, &costs).map_err(|why| InvalidSchedule::plain(why.to_string()))?;
    let bound = bound(&laid, &costs, foreign);
    let (reached, lower_bound) = match objective {
        Objective::Makespan => (timeline.makespan, bound.makespan),
        Objective::Span => (timeline.span, bound.span),
    };
    let gap = if reached > 0.0 { ((reached - lower_bound) / reached).max(0.0) } else { 0.0 };
    let met = laid.pipeline().map_or(reached <= lower_bound, |pipeline| meets(reached, lower_bound, &costs, pipeline));
    let optimal = memory.is_empty() && met;
    let report = ScheduleReport {
        kind: "foreign".into(),
        stages: laid.ranks(),
        microbatches: laid.microbatches(),
        chunks: laid.chunks(),
        objective,
        makespan: timeline.makespan,
        span: timeline.span,
        bubble: timeline.bubble(),
        bubble_span: timeline.bubble_span(),
        lower_bound,
        gap,
        optimal,
        engine: "file".into(),
        status: Status::of(memory.is_empty(), optimal),
        unit: costs.unit,
        deterministic: true,
        stopped: false,
        peak_memory: timeline.peak_memory.clone(),
        least_limit: None,
        over_limit: memory.iter().map(Violation::to_string).collect(),
        order: foreign.rows.iter().map(|row| printed(row)).collect(),
        seconds: clock.elapsed().as_secs_f64(),
    };
    Ok((report, timeline))
}

fn printed(row: &[Action]) -> Vec<String> {
    let work = row.iter().filter(|action| action.items().all(|item| item.stage.is_some()));
    work.map(Action::to_string).collect()
}

/// Lower bound on all orders: for a known placement from heads, loads and tails, else from the load of a rank.
fn bound(laid: &InferredPlacement, costs: &StageCosts, schedule: &Schedule) -> Bound {
    if let Some(pipeline) = laid.pipeline() {
        return lower_bound(costs, pipeline, false);
    }
    // A pair takes `fb` for its two: whatever is paired, each half counts at least this.
    let half = costs.fb.map_or(f64::INFINITY, |fb| fb / 2.0);
    let loads = schedule.rows.iter().map(|row| {
        let actions = row.iter().map(|action| action.items().map(|item| costs.seconds(&Action::One(item)).min(half)));
        actions.map(Iterator::sum::<f64>).sum()
    });
    let load = loads.fold(0.0, f64::max);
    Bound { makespan: load, span: load }
}

#[cfg(test)]
mod tests;
