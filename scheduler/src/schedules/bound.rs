//! A lower bound of the time of any order on a placement: proves a schedule optimal when it meets the bound.
//!
//! Each rank is a machine by itself. An action on it has a *head*, seconds that must pass before it starts, and a *tail*,
//! seconds that must follow its end; both come from the ways of the micro-batches through the other ranks. What one
//! machine needs at least for such jobs, if it may interrupt them, is known (Jackson's preemptive schedule, see
//! `one_rank.rs`), and no order of the pipeline takes less.
//!
//! Heads and tails count. Before the j-th I of a stage starts, j micro-batches have been through every rank before it:
//! its head is the largest of, over sets G of actions that a rank does for each micro-batch on the way there,
//! `way to G + j x (seconds of G) + way from G`. Tails likewise, with the W of G where nothing need follow them.

mod one_rank;
mod way;

use crate::costs::StageCosts;
use crate::placement::{Pipeline, Placement};
use one_rank::{Job, least_end};
use way::{Shares, Way};

/// No order of the actions takes less.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// From time 0 to the end of the last action.
    pub makespan: f64,
    /// The longest of the ranks' own spans, first start to last end.
    pub span: f64,
}

/// A bound without regard to memory.
///
/// The makespan is bounded by the jobs of each rank with their whole heads and tails; the span by the jobs of a rank
/// between the first F and the last I of its first stage: the rank's first start comes before all of them.
///
/// With `fused` backwards each I is i + w long and no W is left to follow. An overlapped pair takes `fb` for its two: of
/// that one share is reckoned for the F, the rest for the B, shared out on each rank so that its work is the most.
pub fn lower_bound(costs: &StageCosts, pipeline: &Pipeline, fused: bool) -> Bound {
    let shares: Vec<Shares> = (0..pipeline.ranks).map(|rank| Shares::of(costs, pipeline, rank)).collect();
    let way = |(first, units)| Way::of(costs, pipeline, fused, &shares, first, units);
    let ways: Vec<Way> = directions(pipeline).map(way).collect();
    let mut bound = Bound { makespan: 0.0, span: 0.0 };
    for rank in 0..pipeline.ranks {
        let least = |whole| least_end(ways.iter().flat_map(|way| jobs(way, rank, whole)).collect());
        bound.makespan = bound.makespan.max(least(true));
        bound.span = bound.span.max(least(false));
    }
    bound
}

/// What a rank does for one direction: within the whole way, or within the part between its own first and last step.
fn jobs(way: &Way, rank: u32, whole: bool) -> Vec<Job> {
    let own = way.steps_of(rank);
    let (Some(&first), Some(&last)) = (own.first(), own.last()) else { return Vec::new() };
    let part = if whole { way.whole() } else { way.between(first, last) };
    let mut jobs = Vec::with_capacity(3 * own.len() * way.units as usize);
    for &at in own {
        let step = way.steps[at];
        let (heads, tails) = (part.before_start(at), part.after(at));
        jobs.extend((0..way.units).map(|done| Job {
            head: heads.at(done + 1),
            seconds: step.share,
            tail: tails.at(way.units - done),
        }));
        if let Some(weights) = step.weights {
            let heads = if weights.in_pair { heads } else { part.before_end(at) };
            let job = |done| Job { head: heads.at(done + 1), seconds: weights.share, tail: 0.0 };
            jobs.extend((0..way.units).map(job));
        }
    }
    jobs
}

/// The micro-batches of each direction: the first of them, and how many slices of them there are.
fn directions(pipeline: &Pipeline) -> impl Iterator<Item = (u32, u32)> + use<> {
    let (m, slices) = (pipeline.microbatches, pipeline.slices);
    let down = if pipeline.placement == Placement::Bidirectional { m.div_ceil(2) } else { m };
    [(0, down), (down, m - down)].into_iter().filter(|&(_, count)| count > 0).map(move |(first, n)| (first, n * slices))
}

#[cfg(test)]
mod tests;
