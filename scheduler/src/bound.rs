//! Lower bound on the time of any order on a placement. A schedule that meets the bound is optimal.
//!
//! Each rank is a machine by itself. An action on it has a *head*, seconds that must pass before it starts, and a *tail*,
//! seconds that must follow its end. Both come from the routes of the micro-batches through the other ranks. The minimum
//! time of one machine for such jobs with preemption is known (Jackson's preemptive schedule, see `one_rank.rs`). No order
//! of the pipeline takes less.
//!
//! Heads and tails depend on the micro-batch count. Before the j-th I of a stage starts, j micro-batches have passed every
//! earlier rank of the route. The head is the maximum over sets G of actions that a rank performs for each micro-batch on
//! the route: `route to G + j x (seconds of G) + route from G`. Tails are analogous, with the W of G where no action need
//! follow them.

mod area;
mod counts;
mod one_rank;
mod rounding;
mod route;

pub use rounding::{meets, rounding};

use crate::costs::StageCosts;
use crate::placement::{Pipeline, Placement};
use crate::problem::{Objective, Problem, is_over};
use one_rank::{Job, least_end};
use route::{CriticalRoute, PairShares};
use std::time::Instant;

/// Lower bounds on the times of any order, in the unit of the costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// Bound on the time from 0 to the end of the last action.
    pub makespan: f64,
    /// Bound on the longest span of a rank, from its first start to its last end.
    pub span: f64,
}

/// Limit on the number of step comparisons: about one second of work, and all ranks of a pipeline of a thousand.
const MOST_STEPS: usize = 4_000_000;

/// Smallest number of ranks that are evaluated.
const LEAST_RANKS: usize = 3;

/// Computes a bound that ignores memory limits.
///
/// The makespan is bounded by the jobs of each rank with their full heads and tails. The span is bounded by the jobs between
/// the first F and the last I of the rank's first stage, since the rank's first start precedes all of them.
///
/// With `fused` backwards each I takes i + w and no W follows. An overlapped pair takes `fb`, of which one share counts for the
/// F and the rest for the B. Each rank uses the shares that maximise its work.
pub fn lower_bound(costs: &StageCosts, pipeline: &Pipeline, fused: bool) -> Bound {
    lower_bound_within(costs, pipeline, fused, None)
}

/// Computes [`lower_bound`] on a subset of ranks if the pipeline is long or the deadline passes. The bound is then lower, and
/// still valid.
pub fn lower_bound_within(costs: &StageCosts, pipeline: &Pipeline, fused: bool, deadline: Option<Instant>) -> Bound {
    let shares: Vec<PairShares> = (0..pipeline.ranks).map(|rank| PairShares::of(costs, pipeline, rank)).collect();
    let routes: Vec<CriticalRoute> = directions(pipeline)
        .map(|(first, units)| CriticalRoute::of(costs, pipeline, fused, &shares, first, units))
        .collect();
    let mut bound = Bound { makespan: 0.0, span: 0.0 };
    for (nth, rank) in looked_at(costs, pipeline).into_iter().enumerate() {
        if nth >= LEAST_RANKS && is_over(deadline) {
            break;
        }
        bound.makespan = bound.makespan.max(least_seconds(&routes, rank, true));
        bound.span = bound.span.max(least_seconds(&routes, rank, false));
    }
    // Sums are rounded: the bound is reduced so that no order's rounded sum is below it.
    let known = 1.0 - rounding(costs, pipeline);
    Bound { makespan: bound.makespan * known, span: bound.span * known }
}

/// Computes a bound on the objective that follows from the memory limits; 0 without limits. It may be below [`lower_bound`].
pub(crate) fn bound_of_memory(problem: &Problem) -> f64 {
    let counts = if problem.objective == Objective::Makespan { counts::chain(problem) } else { None };
    // The area is divided by the limit, which rounds too.
    let area = area::of(problem) * (1.0 - 4.0 * f64::EPSILON);
    area.max(counts.unwrap_or(0.0)) * (1.0 - rounding(problem.costs, problem.pipeline))
}

/// Returns the ranks to evaluate, those with the most work first. If there are too many, half of the chosen ranks have the most
/// work and half are evenly spaced.
fn looked_at(costs: &StageCosts, pipeline: &Pipeline) -> Vec<u32> {
    let ranks = pipeline.ranks;
    let own = pipeline.chunks as usize;
    let steps = own.saturating_mul(costs.f.len()).saturating_mul(4).max(1);
    let most = (MOST_STEPS / steps).max(LEAST_RANKS);
    let mut all: Vec<(f64, u32)> = (0..ranks)
        .map(|rank| {
            let stages = pipeline.stages_in_both_directions(rank);
            (stages.map(|s| costs.f[s] + costs.i[s] + costs.w[s]).sum(), rank)
        })
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut chosen: Vec<u32> = all.into_iter().map(|(_, rank)| rank).collect();
    if chosen.len() > most {
        chosen.truncate(most.div_ceil(2));
        let apart = most as u64 / 2;
        chosen.extend((0..apart).map(|n| (n * u64::from(ranks - 1) / apart.saturating_sub(1).max(1)) as u32));
    }
    chosen
}

/// Returns the least seconds of a rank for its jobs in all directions.
fn least_seconds(routes: &[CriticalRoute], rank: u32, whole: bool) -> f64 {
    least_end(routes.iter().flat_map(|route| jobs(route, rank, whole)).collect())
}

/// Returns the jobs of a rank for one direction. With `whole`, heads and tails cover the whole route, else only the part
/// between the rank's first and last step.
fn jobs(route: &CriticalRoute, rank: u32, whole: bool) -> Vec<Job> {
    let own = route.steps_of(rank);
    let (Some(&first), Some(&last)) = (own.first(), own.last()) else { return Vec::new() };
    let part = if whole { route.whole() } else { route.between(first, last) };
    let mut jobs = Vec::with_capacity(3 * own.len() * route.units as usize);
    for &at in own {
        let step = route.steps[at];
        let (heads, tails) = (part.before_start(at), part.after(at));
        jobs.extend((0..route.units).map(|done| Job {
            head: heads.at(done + 1),
            seconds: step.share,
            tail: tails.at(route.units - done),
        }));
        if let Some(weights) = step.weights {
            let heads = if weights.in_pair { heads } else { part.before_end(at) };
            jobs.extend((0..route.units).map(|done| Job {
                head: heads.at(done + 1),
                seconds: weights.share,
                tail: 0.0,
            }));
        }
    }
    jobs
}

/// Returns the first micro-batch of each direction, and the number of slices of all its micro-batches.
fn directions(pipeline: &Pipeline) -> impl Iterator<Item = (u32, u32)> + use<> {
    let (m, slices) = (pipeline.microbatches, pipeline.slices);
    let down = if pipeline.placement == Placement::Bidirectional { m.div_ceil(2) } else { m };
    [(0, down), (down, m - down)].into_iter().filter(|&(_, count)| count > 0).map(move |(first, n)| (first, n * slices))
}

#[cfg(test)]
mod tests;
