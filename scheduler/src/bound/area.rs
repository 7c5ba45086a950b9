//! Lower bound under memory limits for every placement: memory times seconds.
//!
//! A micro-batch holds the memory of a stage at least from the start of its F to the end of its I, the time of the route from there
//! and back, and what is left until its W has ended. All micro-batches together hold no more than the limit at any time. The span
//! of a rank is therefore at least the sum over what they hold, each times its seconds, over the limit. While the first F run and
//! while the last I and W end, a rank holds less: the memory that it lacks then adds to the sum.

use super::directions;
use super::route::{CriticalRoute, PairShares};
use crate::problem::{Backward, Objective, Problem};

/// Memory times seconds that a rank lacks at an end of its span, and the seconds of that end.
#[derive(Clone, Copy, Default)]
struct Ramp {
    lacks: f64,
    seconds: f64,
}

impl Ramp {
    /// The ramp of actions of at least some seconds, each of which changes the memory by at most a piece.
    fn of(limit: f64, piece: f64, seconds: f64) -> Ramp {
        if piece <= 0.0 || !limit.is_finite() {
            return Ramp::default();
        }
        let steps = (limit / piece).ceil().max(1.0) - 1.0;
        // The sum of `limit - j piece` over j from 1 to the number of steps.
        Ramp { lacks: seconds * steps * (limit - piece * (steps + 1.0) / 2.0), seconds: seconds * steps }
    }
}

/// Computes the bound on the objective; 0 without limits.
pub(super) fn of(problem: &Problem) -> f64 {
    let (costs, pipeline) = (problem.costs, problem.pipeline);
    let Some(limits) = &costs.limit else { return 0.0 };
    let fused = problem.backward == Backward::Fused;
    let shares: Vec<PairShares> = (0..pipeline.ranks).map(|rank| PairShares::of(costs, pipeline, rank)).collect();
    let mut held = vec![0.0; limits.len()];
    let mut heads = vec![f64::INFINITY; limits.len()];
    for (first, units) in directions(pipeline) {
        let route = CriticalRoute::of(costs, pipeline, fused, &shares, first, units);
        for stage in 0..costs.f.len() {
            let rank = pipeline.rank(stage as u32, first) as usize;
            let [start, end] = route.round_trip(stage);
            let left = if fused || costs.fb.is_some() { 0.0 } else { costs.mem_w[stage] * costs.w[stage] };
            held[rank] += f64::from(units) * (costs.mem_f[stage] * (end - start) + left);
            heads[rank] = heads[rank].min(start);
        }
    }
    let limited = (0..limits.len()).filter(|&rank| limits[rank] > 0.0 && limits[rank].is_finite());
    let bounds = limited.map(|rank| {
        let limit = limits[rank];
        let [start, end] = ramps(problem, rank as u32, limit);
        let least = held[rank] / limit;
        // In a shorter span the two ends overlap.
        let is_long = least >= start.seconds + end.seconds;
        let span = if is_long { least + (start.lacks + end.lacks) / limit } else { least };
        if problem.objective == Objective::Makespan { heads[rank] + span } else { span }
    });
    most(bounds)
}

/// The ramps at the start and at the end of a rank's span. Where pairs have a time of their own there are none.
fn ramps(problem: &Problem, rank: u32, limit: f64) -> [Ramp; 2] {
    let (costs, pipeline) = (problem.costs, problem.pipeline);
    if costs.fb.is_some() {
        return [Ramp::default(); 2];
    }
    let stages: Vec<usize> = pipeline.stages_in_both_directions(rank).collect();
    let taken = most(stages.iter().map(|&s| costs.mem_f[s]));
    let start = Ramp::of(limit, taken, least(stages.iter().map(|&s| costs.f[s])));
    let end = match problem.backward {
        Backward::Fused => Ramp::of(limit, taken, least(stages.iter().map(|&s| costs.b(s)))),
        _ => {
            let freed = most(stages.iter().map(|&s| costs.mem_i[s].max(costs.mem_w[s])));
            Ramp::of(limit, freed, least(stages.iter().map(|&s| costs.i[s].min(costs.w[s]))))
        }
    };
    [start, end]
}

fn most(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(0.0, f64::max)
}

fn least(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(f64::INFINITY, f64::min)
}
