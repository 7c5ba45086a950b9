//! Lower bound that takes the memory limits into account: the smallest target whose windows are not empty.

use super::Instance;
use super::shop::Shop;
use super::windows::Windows;
use crate::bound::{bound_of_memory, lower_bound_within, meets, rounding};
use crate::problem::{Backward, Objective, Problem};
use std::time::Instant;

/// Largest number of operations for which windows are computed, which takes a fraction of a second.
const MOST_OPERATIONS: usize = 1_000;

/// Computes a lower bound on the value of any order of the problem, given the value of some order. If `instance` is `None`, the
/// operations are listed where needed.
pub(super) fn of(problem: &Problem, instance: Option<&Instance>, value: f64) -> f64 {
    let fused = problem.backward == Backward::Fused;
    let plain = lower_bound_within(problem.costs, problem.pipeline, fused, problem.deadline);
    let plain = match problem.objective {
        Objective::Makespan => plain.makespan,
        Objective::Span => plain.span,
    };
    let rounding = rounding(problem.costs, problem.pipeline);
    let plain = plain.max(super::periodic::memory_bound(problem).unwrap_or(0.0) * (1.0 - rounding));
    let plain = plain.max(bound_of_memory(problem));
    let operations =
        problem.pipeline.stages() as usize * problem.pipeline.microbatches as usize * if fused { 2 } else { 3 };
    if meets(value, plain, problem.costs, problem.pipeline) || operations > MOST_OPERATIONS {
        return plain;
    }
    let listed = instance.is_none().then(|| Instance::new(problem));
    let Some(instance) = instance.or(listed.as_ref()) else { return plain };
    let shop = Shop::new(problem, instance, value);
    let low = shop.units_within(plain);
    let high = (value / shop.unit - 1e-6).ceil() as i64;
    plain.max(smallest(&shop, low, high, problem.deadline) as f64 * shop.unit * (1.0 - rounding))
}

/// Returns the smallest target from `low` to `high` whose windows are not empty, or a smaller one if the deadline passes.
fn smallest(shop: &Shop, mut low: i64, mut high: i64, deadline: Option<Instant>) -> i64 {
    while low < high {
        let middle = low + (high - low) / 2;
        match Windows::within(shop, middle, deadline) {
            Ok(_) => high = middle,
            Err(_) => low = middle + 1,
        }
    }
    low
}
