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
//!
//! The search takes the best schedule of the rules and of list scheduling, and computes a bound from time windows that
//! respect memory. Engines then close the gap. The exact engine asks a constraint solver for orders within a target, in
//! integer units; the order is read from its literals and simulated again. For many micro-batches `periodic` finds a
//! repeating pattern first, whose search does not grow with their number, and then its warm-up and cool-down. `ilp` is the
//! program of the zero-bubble paper, for small problems. Without a deadline engines count work, not time.

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
pub use instance::{Instance, Operation, OrderEntry};
pub use periodic::Periodic;

use crate::bound::meets;
use crate::problem::Problem;
use crate::simulate::{Timeline, simulate};
use ir::schedule::Schedule;
use shop::Shop;
use tracing::{debug, debug_span};

/// The best order found, and its bound.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The order.
    pub schedule: Schedule,
    /// Times of the order's actions, from the simulator.
    pub timeline: Timeline,
    /// Value of the objective.
    pub value: f64,
    /// Lower bound on the value of any order.
    pub bound: f64,
    /// Name of the rule or engine that made the order.
    pub engine: &'static str,
    /// True if value and bound meet.
    pub optimal: bool,
    /// True if the same problem gives the same answer on every machine and in every run.
    pub deterministic: bool,
}

/// Error of a problem whose memory limits no order meets.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("rank {rank} may hold {limit}, but every order makes it hold {least} or more")]
pub struct Infeasible {
    /// A rank whose limit is too low.
    pub rank: usize,
    /// Its limit.
    pub limit: f64,
    /// Smallest limit of this rank under which an order exists.
    pub least: f64,
}

/// Name of the schedule kind.
pub const KIND: &str = "optimal";

/// The engines, in the order in which they run. Each starts from the best order and bound of the engines before it.
const ENGINES: &[&dyn Engine] = &[&periodic::Periodic, &exact::Exact, &ilp::Ilp];

/// Relative difference of value and bound at which engines stop, if all costs are multiples of a common unit. The difference
/// covers the rounding of sums.
const EXACT: f64 = 1e-12;

/// Relative difference at which engines stop if costs were rounded to a unit.
const ROUNDED: f64 = 1e-6;

/// Steps of an engine without a deadline: about twenty seconds.
const WORK: u64 = 2_000_000;

/// Steps of an engine without a deadline if pairs may overlap: about three seconds, since large problems then use all of it.
const WORK_WITH_PAIRS: u64 = 300_000;

/// Finds an order of the least objective within the memory limits, and a lower bound on all orders.
///
/// The answer is never worse than the best of `starts`, named orders that are evaluated while time is left.
///
/// # Errors
///
/// Returns [`Infeasible`] if no order meets the limits.
pub fn solve(
    problem: &Problem,
    starts: &mut dyn Iterator<Item = (&'static str, Schedule)>,
    log: &(dyn Fn(&str) + Sync),
) -> Result<Answer, Infeasible> {
    let instance = Instance::new(problem);
    let _span = debug_span!("order_search", operations = instance.operations.len()).entered();
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
        debug!(engine = engine.name(), value = best.value, bound, "engine finished");
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

/// Computes a lower bound that respects the memory limits; `value` is that of some order.
pub fn lower_bound(problem: &Problem, value: f64) -> f64 {
    bound::of(problem, None, value)
}

/// Returns an order that needs the least memory: one micro-batch after the other.
pub fn least_memory(problem: &Problem) -> Schedule {
    start::one_by_one(&Instance::new(problem))
}
