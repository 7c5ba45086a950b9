//! A lower bound of the time of any order on a placement: proves a schedule optimal when it meets the bound.

use crate::costs::StageCosts;
use crate::placement::{Pipeline, Placement};

/// No order of the actions takes less.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// From time 0 to the end of the last action.
    pub makespan: f64,
    /// The longest of the ranks' own spans, first start to last end.
    pub span: f64,
}

/// A bound from heads, loads and tails, without regard to memory.
///
/// For a rank r that holds the stages S(r), with m micro-batches (in two chains: of the direction):
/// - `head(r)` = least seconds before its first F can start: all F of earlier stages and their hops;
/// - `tail(r)` = least seconds from the end of its last I to the end of the step: all I of earlier stages, their hops,
///   and the W of stage 0;
/// - makespan >= max over r of `head + m Σ(f+i+w)` and `head + m Σ(f+i) + tail`, sums over S(r);
/// - span >= max over r of `m Σ(f+i+w)`, and the way of one micro-batch through all stages and back to its W on stage 0.
///
/// With `fused` backwards each I is i + w long and no W is left to follow. An overlapped pair takes `fb` for its two, so
/// with `fb` each half counts `fb/2` at most, and the last W may have come with its I.
pub fn lower_bound(costs: &StageCosts, pipeline: &Pipeline, fused: bool) -> Bound {
    let half = costs.fb.map_or(f64::INFINITY, |fb| fb / 2.0);
    let f = |s: usize| costs.f[s].min(half);
    let b = |s: usize| (costs.i[s] + costs.w[s]).min(half);
    let i = |s: usize| if fused { b(s) } else { costs.i[s].min(half) };
    let local = |s: usize| pipeline.rank(s as u32 - 1, 0) == pipeline.rank(s as u32, 0);
    let hop = |s: usize| if local(s) { 0.0 } else { costs.comm[s - 1] };

    let stages = costs.f.len();
    let (mut head, mut tail) = (vec![0.0; stages], vec![0.0; stages]);
    tail[0] = if fused || costs.fb.is_some() { 0.0 } else { costs.w[0] };
    for s in 1..stages {
        head[s] = head[s - 1] + f(s - 1) + hop(s);
        tail[s] = tail[s - 1] + i(s - 1) + hop(s);
    }

    let last = stages - 1;
    let mut bound = Bound { makespan: 0.0, span: head[last] + f(last) + i(last) + tail[last] };
    for rank in 0..pipeline.ranks {
        // (stage, how many micro-batches run through it here)
        let held: Vec<(usize, f64)> = directions(pipeline)
            .flat_map(|(first, count)| pipeline.stages_of(rank, first).map(move |s| (s as usize, f64::from(count))))
            .collect();
        let least = |of: &[f64]| held.iter().map(|&(s, _)| of[s]).fold(f64::INFINITY, f64::min);
        let work: f64 = held.iter().map(|&(s, m)| m * (f(s) + b(s))).sum();
        let to_last_i = held.iter().map(|&(s, m)| m * (f(s) + i(s))).sum::<f64>() + least(&tail);
        bound.makespan = bound.makespan.max(least(&head) + work.max(to_last_i));
        bound.span = bound.span.max(work);
    }
    bound
}

/// The micro-batches of each direction: the first of them, and how many.
fn directions(pipeline: &Pipeline) -> impl Iterator<Item = (u32, u32)> + use<> {
    let m = pipeline.microbatches;
    let down = if pipeline.placement == Placement::Bidirectional { m.div_ceil(2) } else { m };
    [(0, down), (down, m - down)].into_iter().filter(|&(_, count)| count > 0)
}
