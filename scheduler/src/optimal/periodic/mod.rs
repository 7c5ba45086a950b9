//! Search for many micro-batches: the best repeating pattern first, then its warm-up and cool-down.
//!
//! The pattern gives for one period the time of each class (a kind of a stage). Finding the pattern does not depend on the
//! number of micro-batches m. Modulo scheduling places the classes for shorter and shorter periods.
//!
//! Memory or placement may keep the period above the load of the busiest rank. If the pattern is small, a mixed-integer
//! program then finds the shortest period or proves optimality. A local search completes the pattern: how many F come early,
//! and how long W may be delayed. Each candidate is timed as a whole schedule.

mod ahead;
mod bound;
mod fill;
mod greedy;
mod pattern;
mod program;
mod search;
mod shape;

pub(super) use bound::chain as memory_bound;

use super::{Engine, Found, Incumbent, Task};
use pattern::Pattern;
use search::Completed;
use shape::Shape;
use solver::Limits;

/// The engine of repeating patterns.
#[derive(Clone, Copy, Debug)]
pub struct Periodic;

/// Smallest number of operations; the exact engines solve smaller problems.
const LEAST_OPERATIONS: usize = 400;

/// Largest number of micro-batches of a direction in a period. Three allow an average period of a third of a whole one.
const UNROLL: usize = 3;

/// Largest number of integer variables of a program, which microlp solves in about a second.
const MOST_SIZE: usize = 48;

/// Largest number of budget steps used, about two seconds.
const MOST_WORK: u64 = 1_000_000;

/// Steps of the budget per node of the program.
const STEPS_PER_NODE: u64 = 3_000;

/// Operations timed per step of the budget.
const OPERATIONS_PER_STEP: u64 = 100;

impl Engine for Periodic {
    fn name(&self) -> &'static str {
        "periodic"
    }

    fn suits(&self, task: &Task) -> bool {
        let enough = task.instance.operations.len() >= LEAST_OPERATIONS;
        enough && task.instance.pair.is_none() && Shape::new(task.instance, task.pipeline(), 1).is_some()
    }

    fn search(&self, task: &Task) -> Found {
        let bound = task.bound;
        let mut best: Option<Completed> = None;
        let mut shortest = f64::INFINITY;

        for unroll in 1..=UNROLL {
            let Some(shape) = Shape::new(task.instance, task.pipeline(), unroll) else { break };
            let at_load = shortest <= shape.load() / unroll as f64 * (1.0 + 1e-9);
            let meets_bound = best.as_ref().is_some_and(|best| task.meets(best.value, bound));
            if at_load || meets_bound || task.budget.late() {
                break;
            }
            let Some(pattern) = found(task, &shape) else { continue };
            shortest = shortest.min(pattern.period / unroll as f64);
            let completed = search::complete(task, &shape, &pattern, tries(task));
            if let Some(completed) = &completed {
                (task.log)(&format!("periodic: value {}, bound {bound}", completed.value));
            }
            best = better(best, completed);
        }
        Found { better: best.and_then(|best| incumbent(task, &best)), bound }
    }
}

/// Returns the pattern of the shortest period found for a shape.
fn found(task: &Task, shape: &Shape) -> Option<Pattern> {
    let pattern = greedy::shortest(shape)?;
    let (load, size) = (shape.load(), program::size(shape));

    (task.log)(&format!(
        "periodic: u = {}, {size} integers, period {} of {}",
        shape.unroll,
        shape.per_microbatch(pattern.period),
        shape.per_microbatch(load)
    ));
    if size > MOST_SIZE || pattern.period <= load * (1.0 + 1e-9) {
        return Some(pattern);
    }
    let time = task.budget.deadline.map(|deadline| deadline.saturating_duration_since(std::time::Instant::now()) / 4);
    let nodes = Some(task.budget.work.min(MOST_WORK) / STEPS_PER_NODE);
    let solved = program::solve(shape, &pattern, &Limits { nodes, time, gap: 0.0 });
    let known = if solved.proved { "the shortest there is" } else { "not proved the shortest" };
    let period = shape.per_microbatch(solved.pattern.period);
    (task.log)(&format!("periodic: period {period} by the program, {known}"));
    Some(solved.pattern)
}

fn tries(task: &Task) -> u64 {
    let each = (task.instance.operations.len() as u64).div_ceil(OPERATIONS_PER_STEP);
    task.budget.work.min(MOST_WORK) / each.max(1)
}

fn better(a: Option<Completed>, b: Option<Completed>) -> Option<Completed> {
    match (&a, &b) {
        (Some(first), Some(second)) if second.value < first.value => b,
        (Some(_), _) => a,
        (None, _) => b,
    }
}

/// Returns the engine's answer if it is better than the known one.
fn incumbent(task: &Task, best: &Completed) -> Option<Incumbent> {
    let incumbent = Incumbent::of(task.instance.schedule(&best.filled.orders), task.problem, "periodic")?;
    task.best.is_none_or(|known| incumbent.value < known.value).then_some(incumbent)
}

#[cfg(test)]
mod tests;
