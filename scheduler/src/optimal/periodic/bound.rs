//! Lower bound on the cost of the memory limit in a chain, for all orders, in closed form.

use crate::placement::Placement;
use crate::problem::{Backward, Objective, Problem};

/// Computes a lower bound on the objective in a chain with memory limits. Returns `None` for other placements, and for pairs
/// with a time of their own.
///
/// Let f, i, w be the seconds of rank r and L its limit. R is the least time from the end of an F to the start of the same
/// micro-batch's I: all F and I of later ranks, and the hops there and back. At most `K = floor(L / mem_f)` of its F can be
/// unfreed at once. Micro-batches may go in any order; F_j is the j-th F that the rank runs, from 0. Then
///
/// - *start*: the first I starts at least f + R after the start of F_0. Only F can run before it, and none of them is freed. So
///   the rank idles at least `f + R - min(K, m) f`.
/// - *end*: the I of the micro-batch of F_{m-1} starts at least R after the end of F_{m-1}. In between only I and W of others
///   can run whose memory was still in use with F_{m-1}. Let a of them have mem_f (its own among them), and b only W left: `a
///   mem_f + b mem_w <= L`. They take at most `(a-1)(i+w) + b w` seconds, and the rank idles for the rest of R.
/// - *period*: when F_{j+K} starts, j + 1 micro-batches have ended their I, so that one of them ran its F as F_j or later. So
///   F_{j+K} starts at least `f + R + i` after F_j, and a micro-batch takes `(f + R + i) / K` on average. With `q = floor((m-1) /
///   K)` such steps from F_0, and the work before and after them, the span is at least `((m-1) - qK) f + q (f + R + i) + f + R +
///   i + w`.
///
/// If m > K the idle times of start and end add up: F_K waits for an I, so that F_{m-1} ends after the start of the first I and
/// the two do not overlap. The span of the rank is at least its work `m (f + i + w)` plus these idle times. The makespan is
/// longer by at least all F of earlier ranks and their hops, since the rank does not start before.
pub(in crate::optimal) fn chain(problem: &Problem) -> Option<f64> {
    let (costs, pipeline) = (problem.costs, problem.pipeline);
    let limits = costs.limit.as_ref()?;
    if pipeline.placement != Placement::Chain || (costs.fb.is_some() && problem.backward != Backward::Split) {
        return None;
    }
    let fused = problem.backward == Backward::Fused;
    let ranks = pipeline.ranks as usize;
    let (mut heads, mut trips) = (vec![0.0; ranks], vec![0.0; ranks]);
    for rank in 1..ranks {
        heads[rank] = heads[rank - 1] + costs.f[rank - 1] + costs.comm[rank - 1];
    }
    for below in (1..ranks).rev() {
        let backward = if fused { costs.b(below) } else { costs.i[below] };
        trips[below - 1] = trips[below] + costs.f[below] + backward + 2.0 * costs.comm[below - 1];
    }
    let bounds = (0..ranks).map(|rank| {
        let of_rank = LimitedRank {
            f: costs.f[rank],
            i: if fused { costs.b(rank) } else { costs.i[rank] },
            w: if fused { 0.0 } else { costs.w[rank] },
            mem_f: costs.mem_f[rank],
            mem_w: costs.mem_w[rank],
            limit: limits[rank],
            trip: trips[rank],
            microbatches: f64::from(pipeline.microbatches),
        };
        let span = of_rank.span();
        if problem.objective == Objective::Makespan { heads[rank] + span } else { span }
    });
    Some(bounds.fold(0.0, f64::max))
}

/// A rank of a chain: seconds and memory of its stage, and its memory limit.
struct LimitedRank {
    f: f64,
    /// Seconds of an I, or of a B.
    i: f64,
    /// Seconds of a W; 0 if it is part of a B.
    w: f64,
    mem_f: f64,
    mem_w: f64,
    limit: f64,
    /// Seconds of all F and I of later ranks, with their hops.
    trip: f64,
    microbatches: f64,
}

impl LimitedRank {
    /// Returns a lower bound on the span.
    fn span(&self) -> f64 {
        let LimitedRank { f, i, w, trip, microbatches: m, .. } = *self;
        let most = fitting(self.limit, self.mem_f).min(m).max(1.0);
        let start = (f + trip - most * f).max(0.0);
        let end = (trip - self.work_at_end()).max(0.0);
        let idle = if m > most { start + end } else { start.max(end) };
        let steps = ((m - 1.0) / most).floor();
        let rounds = (m - 1.0 - steps * most) * f + (steps + 1.0) * (f + trip + i) + w;
        (m * (f + i + w) + idle).max(rounds)
    }

    /// Returns the most seconds of I and W that can be left when the last F runs.
    fn work_at_end(&self) -> f64 {
        let whole = fitting(self.limit, self.mem_f).min(self.microbatches) as u32;
        let left = (1..=whole).map(f64::from).map(|a| {
            let only_w = fitting(self.limit - a * self.mem_f, self.mem_w).min(self.microbatches - a);
            (a - 1.0) * (self.i + self.w) + only_w * self.w
        });
        left.fold(0.0, f64::max)
    }
}

/// Returns the number of pieces of memory that fit, up to rounding.
fn fitting(limit: f64, piece: f64) -> f64 {
    if piece > 0.0 { ((limit / piece) * (1.0 + 1e-9) + 1e-9).floor().max(0.0) } else { f64::INFINITY }
}
