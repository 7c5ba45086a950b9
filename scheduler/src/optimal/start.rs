//! Warm start of the search: the best schedule of the rules and of list scheduling, and one that always fits.

use super::{Incumbent, Infeasible, Instance, list};
use crate::limits::{first_below, least_limit};
use crate::problem::{Problem, is_over};
use ir::schedule::{Kind, Schedule};

/// Returns the best of the given orders, of list scheduling, and of one micro-batch after the other. Orders are evaluated while
/// time is left, at least one of them.
///
/// # Errors
///
/// Returns [`Infeasible`] if no order meets the limits. A rank must save all its stages' activations of one micro-batch before
/// the last backward, and one rank's limit is lower.
pub(super) fn best(
    problem: &Problem,
    instance: &Instance,
    starts: &mut dyn Iterator<Item = (&'static str, Schedule)>,
    log: &(dyn Fn(&str) + Sync),
) -> Result<Incumbent, Infeasible> {
    let by_rule = starts.filter_map(|(name, schedule)| Incumbent::of(schedule, problem, name));
    let mut best: Option<Incumbent> = None;
    let listed = list::orders(instance, problem.deadline).filter_map(|order| Incumbent::of(order, problem, "list"));
    for found in by_rule.chain(listed).chain(Incumbent::of(one_by_one(instance), problem, "one by one")) {
        if best.as_ref().is_none_or(|best| found.value < best.value) {
            log(&format!("value {} by {}", found.value, found.by));
            best = Some(found);
        }
        if best.is_some() && is_over(problem.deadline) {
            break;
        }
    }
    best.ok_or_else(|| too_little(problem, instance))
}

/// Returns the order of one micro-batch after the other, each W right after its I.
pub(super) fn one_by_one(instance: &Instance) -> Schedule {
    let operations = &instance.operations;
    let orders: Vec<Vec<usize>> = (instance.of_rank.iter())
        .map(|rank| {
            let mut order = rank.clone();
            order.sort_by_key(|&index| {
                let operation = &operations[index];
                let back = operation.kind != Kind::F;
                let stage = operation.stage as i64;
                (operation.microbatch, back, if back { -stage } else { stage }, operation.kind == Kind::W)
            });
            order
        })
        .collect();
    instance.schedule(&orders)
}

/// Returns a rank whose limit is below the memory of one micro-batch.
fn too_little(problem: &Problem, instance: &Instance) -> Infeasible {
    let least = least_limit(problem.costs, problem.pipeline);
    let rank = first_below(&least, Some(&instance.limit)).unwrap_or(0);
    Infeasible { rank, limit: instance.limit[rank], least: least[rank] }
}
