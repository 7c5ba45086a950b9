//! Input and output of an engine.

use super::Instance;
use crate::placement::Pipeline;
use crate::problem::{Objective, Problem, is_over};
use crate::simulate::{Timeline, simulate};
use ir::schedule::Schedule;
use std::time::Instant;

/// A search that improves orders, bounds, or both.
pub trait Engine: Sync {
    /// Returns the name of the engine in answers.
    fn name(&self) -> &'static str;

    /// Returns whether the engine handles such problems, by a cheap test of size and shape.
    fn suits(&self, task: &Task) -> bool;

    /// Searches until the budget is spent or value and bound meet.
    ///
    /// Without a deadline the result depends on the task alone, not on time or on the number of cores.
    fn search(&self, task: &Task) -> Found;
}

/// Input of an engine.
pub struct Task<'a> {
    /// The problem to solve.
    pub problem: &'a Problem<'a>,
    /// The operations of the problem, with their precedences.
    pub instance: &'a Instance,
    /// The best order so far; `None` if no order within the limits is known.
    pub best: Option<&'a Incumbent>,
    /// Lower bound on the value of any order.
    pub bound: f64,
    /// Relative difference up to which value and bound count as equal.
    pub tolerance: f64,
    /// Limits on the search.
    pub budget: Budget,
    /// Receives diagnostic lines: sizes, bounds and values over time.
    pub log: &'a (dyn Fn(&str) + Sync),
}

/// Limits on an engine's search.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Steps of the engine's own kind (conflicts, nodes, pivots), scaled so that a million take about ten seconds.
    pub work: u64,
    /// Time at which the search stops even if work is left.
    pub deadline: Option<Instant>,
}

impl Budget {
    /// Returns whether the deadline has passed.
    pub fn late(&self) -> bool {
        is_over(self.deadline)
    }
}

/// An order within the memory limits.
#[derive(Clone, Debug)]
pub struct Incumbent {
    /// The order.
    pub schedule: Schedule,
    /// Its value in the simulator.
    pub value: f64,
    /// Name of the rule or engine that made the order.
    pub by: &'static str,
}

/// Output of an engine.
#[derive(Clone, Debug)]
pub struct Found {
    /// An order better than the one in the task, if the engine found one.
    pub better: Option<Incumbent>,
    /// Lower bound on the value of any order. Infinite if the engine proved that no order exists, minus infinity if the engine
    /// computes no bound.
    pub bound: f64,
}

impl Incumbent {
    /// Simulates an order. Returns `None` if the order deadlocks or exceeds a limit.
    pub fn of(schedule: Schedule, problem: &Problem, by: &'static str) -> Option<Incumbent> {
        let timeline = simulate(&schedule, problem.costs).ok()?;
        holds(&timeline, problem).then(|| Incumbent { schedule, value: value(&timeline, problem.objective), by })
    }
}

/// Returns the value of a timeline.
pub(super) fn value(timeline: &Timeline, objective: Objective) -> f64 {
    match objective {
        Objective::Makespan => timeline.makespan,
        Objective::Span => timeline.span,
    }
}

/// Returns whether all ranks are within their limits, up to rounding.
fn holds(timeline: &Timeline, problem: &Problem) -> bool {
    let Some(limits) = &problem.costs.limit else { return true };
    timeline.peak_memory.iter().zip(limits).all(|(&peak, &limit)| peak <= limit + 1e-9 * limit)
}

impl Task<'_> {
    /// Returns the pipeline of the problem.
    pub fn pipeline(&self) -> &Pipeline {
        self.problem.pipeline
    }

    /// Returns whether a value equals the bound, up to rounding.
    pub fn meets(&self, value: f64, bound: f64) -> bool {
        value <= bound + self.tolerance * value.abs()
    }
}
