//! A bound that knows of the memory limits: the smallest target whose windows are not empty.

use super::Instance;
use super::shop::Shop;
use super::windows::Windows;
use crate::problem::{Backward, Objective, Problem};
use crate::schedules::bound::lower_bound;
use std::time::Instant;

/// The most operations for which windows are made: a fraction of a second.
const MOST_OPERATIONS: usize = 1_000;

/// No order of the instance has a smaller value; `value` is that of some order.
pub(super) fn of(problem: &Problem, instance: &Instance, value: f64) -> f64 {
    let plain = lower_bound(problem.costs, problem.pipeline, problem.backward == Backward::Fused);
    let plain = match problem.objective {
        Objective::Makespan => plain.makespan,
        Objective::Span => plain.span,
    };
    let plain = plain.max(super::periodic::memory_bound(problem).unwrap_or(0.0));
    if value <= plain * (1.0 + 1e-9) || instance.operations.len() > MOST_OPERATIONS {
        return plain;
    }
    let shop = Shop::new(problem, instance, value);
    let low = (plain / shop.unit - 1e-6).ceil() as i64;
    let high = (value / shop.unit - 1e-6).ceil() as i64;
    plain.max(smallest(&shop, low, high, problem.deadline) as f64 * shop.unit)
}

/// The smallest target from `low` to `high` whose windows are not empty, or one below it where the deadline comes first.
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
