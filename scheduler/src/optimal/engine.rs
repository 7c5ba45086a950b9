//! Input and output of an engine.

use super::Instance;
use crate::placement::Pipeline;
use crate::problem::{Objective, Problem, is_over};
use crate::simulate::{Timeline, simulate};
use ir::schedule::Schedule;
use std::time::Instant;

/// A way to better orders, to better bounds, or to both.
pub trait Engine: Sync {
    /// As the answer names it.
    fn name(&self) -> &'static str;

    /// Whether this engine is for such problems; a cheap test by size and shape.
    fn suits(&self, task: &Task) -> bool;

    /// Searches until the budget is spent or value and bound meet.
    ///
    /// Without a deadline the result depends on the task alone, not on time or on the number of cores.
    fn search(&self, task: &Task) -> Found;
}

/// What an engine is given.
pub struct Task<'a> {
    /// What is asked.
    pub problem: &'a Problem<'a>,
    /// The operations of the problem, with what each needs.
    pub instance: &'a Instance,
    /// The best order so far; `None` if none is known that holds the limits.
    pub best: Option<&'a Incumbent>,
    /// No order has a smaller value.
    pub bound: f64,
    /// How far value and bound may be apart, relative to the value, and meet.
    pub tolerance: f64,
    /// How long to search.
    pub budget: Budget,
    /// Is told lines for people who look inside: sizes, bounds and values over time.
    pub log: &'a (dyn Fn(&str) + Sync),
}

/// How long an engine may search.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Steps of the engine's own kind (conflicts, nodes, pivots), scaled so that a million take some ten seconds.
    pub work: u64,
    /// When to stop even if there is work left.
    pub deadline: Option<Instant>,
}

impl Budget {
    /// Whether the deadline is over.
    pub fn late(&self) -> bool {
        is_over(self.deadline)
    }
}

/// An order that holds the limits.
#[derive(Clone, Debug)]
pub struct Incumbent {
    /// The order.
    pub schedule: Schedule,
    /// Its value, by the simulator.
    pub value: f64,
    /// What made it: a rule or an engine.
    pub by: &'static str,
}

/// What an engine gives.
#[derive(Clone, Debug)]
pub struct Found {
    /// An order better than the one given, if it found one.
    pub better: Option<Incumbent>,
    /// No order has a smaller value; infinite if the engine proved that there is none at all, minus infinity if it
    /// knows nothing of bounds.
    pub bound: f64,
}

impl Incumbent {
    /// Simulates an order; `None` if it cannot be run or breaks a limit.
    pub fn of(schedule: Schedule, problem: &Problem, by: &'static str) -> Option<Incumbent> {
        let timeline = simulate(&schedule, problem.costs).ok()?;
        holds(&timeline, problem).then(|| Incumbent { schedule, value: value(&timeline, problem.objective), by })
    }
}

/// The value of a timeline.
pub(super) fn value(timeline: &Timeline, objective: Objective) -> f64 {
    match objective {
        Objective::Makespan => timeline.makespan,
        Objective::Span => timeline.span,
    }
}

/// Whether no rank passes its limit, up to rounding.
fn holds(timeline: &Timeline, problem: &Problem) -> bool {
    let Some(limits) = &problem.costs.limit else { return true };
    timeline.peak_memory.iter().zip(limits).all(|(&peak, &limit)| peak <= limit + 1e-9 * limit)
}

impl Task<'_> {
    /// The pipeline of the problem.
    pub fn pipeline(&self) -> &Pipeline {
        self.problem.pipeline
    }

    /// Whether a value meets the bound, up to rounding.
    pub fn meets(&self, value: f64, bound: f64) -> bool {
        value <= bound + self.tolerance * value.abs()
    }
}
