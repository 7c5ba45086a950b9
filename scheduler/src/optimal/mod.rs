//! Search for the best order, with proof where possible: warm start, bounds, and engines that improve both.
//!
//! Backwards: `Fused` runs each as a B, `Split` as I and W. `Auto` may choose for each backward. Without `fb`, `Auto` means
//! `Split`, since I followed at once by W replaces a B and the neighbour gets its gradient earlier. With `fb`, `Auto` also
//! allows B in overlapped pairs.
//!
//! List scheduling and the constraint engine place pairs wherever `fb` is less than the sum of the two. The periodic and the
//! mixed-integer programs do not model pairs and leave such problems to them.
//!
//! Each stage takes the micro-batches in turn, and every action runs as early as its order allows. The makespan is then the
//! smallest of all orders. A span could sometimes be smaller if a rank took a later micro-batch first and so started later;
//! such orders are not searched.

mod bound;
mod engine;
mod exact;
mod ilp;
mod instance;
mod list;
mod periodic;
mod pieces;
mod shop;
mod start;
mod units;
mod windows;

pub use engine::{Budget, Engine, Found, Incumbent, Task};
pub use instance::{Instance, Operation, Step};
pub use periodic::Periodic;

use crate::bound::meets;
use crate::problem::Problem;
use crate::simulate::{Timeline, simulate};
use ir::schedule::Schedule;
use shop::Shop;

/// The best order found, and what is known of it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The order.
    pub schedule: Schedule,
    /// The order in time, by the simulator.
    pub timeline: Timeline,
    /// The objective's value.
    pub value: f64,
    /// No order has a smaller value.
    pub bound: f64,
    /// What made the order: the name of a rule or of an engine.
    pub engine: &'static str,
    /// Whether value and bound meet.
    pub optimal: bool,
    /// Whether the same problem gives the same answer on every machine and in every run.
    pub deterministic: bool,
}

/// No order holds the memory limits.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("rank {rank} may hold {limit}, but every order makes it hold {least} or more")]
pub struct Infeasible {
    /// A rank that cannot do with its limit.
    pub rank: usize,
    /// Its limit.
    pub limit: f64,
    /// The smallest limit of this rank that some order holds.
    pub least: f64,
}

/// The name of the kind.
pub const KIND: &str = "optimal";

/// The engines, in the order in which they are tried. Each is given the best order and bound of those before it.
const ENGINES: &[&dyn Engine] = &[&periodic::Periodic, &exact::Exact, &ilp::Ilp];

/// How far value and bound may be apart, relative to the value, for engines to search no more: rounding of sums where the
/// costs are multiples of a common unit,
const EXACT: f64 = 1e-12;

/// and where they were rounded to one.
const ROUNDED: f64 = 1e-6;

/// Steps of an engine where there is no deadline: some twenty seconds,
const WORK: u64 = 2_000_000;

/// and where there are overlapped pairs, which leave so much open that large problems take all of it: some three.
const WORK_WITH_PAIRS: u64 = 300_000;

/// Finds an order of the smallest objective that holds the memory limits, and a bound for all orders.
///
/// The answer is never worse than the best of `starts`, named orders that are taken while there is time.
///
/// # Errors
/// No order holds the limits.
pub fn solve(
    problem: &Problem,
    starts: &mut dyn Iterator<Item = (&'static str, Schedule)>,
    log: &(dyn Fn(&str) + Sync),
) -> Result<Answer, Infeasible> {
    let instance = Instance::new(problem);
    let mut best = start::best(problem, &instance, starts, log)?;
    let mut bound = bound::of(problem, Some(&instance), best.value);
    let tolerance = if Shop::new(problem, &instance, best.value).exact { EXACT } else { ROUNDED };
    let work = if instance.pair.is_some() { WORK_WITH_PAIRS } else { WORK };
    let budget = Budget { work, deadline: problem.deadline };
    for engine in ENGINES {
        log(&format!("value {} by {}, bound {bound}", best.value, best.by));
        let task = Task { problem, instance: &instance, best: Some(&best), bound, tolerance, budget, log };
        if task.meets(best.value, bound) || !engine.suits(&task) {
            continue;
        }
        log(&format!("engine {}: {} operations", engine.name(), instance.operations.len()));
        let found = engine.search(&task);
        bound = bound.max(found.bound);
        best = found.better.unwrap_or(best);
    }
    log(&format!("value {} by {}, bound {bound}", best.value, best.by));
    let timeline = simulate(&best.schedule, problem.costs).expect("an incumbent has been simulated");
    Ok(Answer {
        schedule: Schedule { name: KIND.into(), ..best.schedule },
        timeline,
        value: best.value,
        bound: bound.min(best.value),
        engine: best.by,
        optimal: meets(best.value, bound, problem.costs, problem.pipeline),
        deterministic: problem.deadline.is_none(),
    })
}

/// A bound that knows of the memory limits; `value` is that of some order.
pub fn lower_bound(problem: &Problem, value: f64) -> f64 {
    bound::of(problem, None, value)
}

/// Some order: one micro-batch after the other. None takes less memory.
pub fn least_memory(problem: &Problem) -> Schedule {
    start::one_by_one(&Instance::new(problem))
}
