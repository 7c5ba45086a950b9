//! Warm start of the search: the best schedule of the rules and of list scheduling, and one that always fits.

use super::{Incumbent, Infeasible, Instance, list};
use crate::limits::{first_below, least_limit};
use crate::problem::{Backward, Patience, Problem};
use crate::schedules::{SCHEDULES, split_backward};
use ir::schedule::{Kind, Schedule};

/// The best of all rules for this placement, of list scheduling, and of one micro-batch after the other; of those that there
/// is time for, and of one at least.
///
/// # Errors
/// No order holds the limits: the rank that holds all stages of one micro-batch at once, as it must before the backward
/// of its last one, has no room for that.
pub(super) fn best(
    problem: &Problem,
    instance: &Instance,
    log: &(dyn Fn(&str) + Sync),
) -> Result<Incumbent, Infeasible> {
    let patience = Patience { deadline: problem.deadline, log };
    let by_rule = SCHEDULES.iter().filter_map(|kind| {
        let pipeline = problem.pipeline;
        let fits = kind.pipeline(pipeline.ranks, Some(pipeline.chunks), pipeline.microbatches).ok()?;
        let made = (kind.name != super::KIND && fits.placement == pipeline.placement)
            .then(|| kind.make_within(problem.costs, pipeline, &patience).ok())??;
        let schedule = if problem.backward == Backward::Fused { made } else { split_backward(made) };
        let allowed = schedule.rows.iter().flatten().flat_map(|action| action.items()).all(|item| {
            problem.backward == Backward::Auto || (item.kind == Kind::B) == (problem.backward == Backward::Fused)
        });
        allowed.then(|| Incumbent::of(schedule, problem, kind.name))?
    });
    let mut best: Option<Incumbent> = None;
    let listed = list::orders(instance, problem.deadline).filter_map(|order| Incumbent::of(order, problem, "list"));
    for found in by_rule.chain(listed).chain(Incumbent::of(one_by_one(instance), problem, "one by one")) {
        if best.as_ref().is_none_or(|best| found.value < best.value) {
            log(&format!("value {} by {}", found.value, found.by));
            best = Some(found);
        }
        if best.is_some() && patience.is_over() {
            break;
        }
    }
    best.ok_or_else(|| too_little(problem, instance))
}

/// One micro-batch after the other, each W right behind its I.
pub(super) fn one_by_one(instance: &Instance) -> Schedule {
    let operations = &instance.operations;
    let orders: Vec<Vec<usize>> = (instance.of_rank.iter())
        .map(|rank| {
            let mut order = rank.clone();
            let key = |&index: &usize| {
                let operation = &operations[index];
                let back = operation.kind != Kind::F;
                let stage = operation.stage as i64;
                (operation.microbatch, back, if back { -stage } else { stage }, operation.kind == Kind::W)
            };
            order.sort_by_key(key);
            order
        })
        .collect();
    instance.schedule(&orders)
}

/// A rank whose limit is below what one micro-batch takes on it.
fn too_little(problem: &Problem, instance: &Instance) -> Infeasible {
    let least = least_limit(problem.costs, problem.pipeline);
    let rank = first_below(&least, Some(&instance.limit)).unwrap_or(0);
    Infeasible { rank, limit: instance.limit[rank], least: least[rank] }
}
