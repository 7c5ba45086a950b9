//! Seconds that pipeline ranks wait whatever the stage boundaries and the order of actions are.
//!
//! A rank begins when the first micro-batch has come through all stages before its first one, and its last micro-batch goes back through
//! them. Each stage has at least one block instance, so that the first n stages have at least the first n instances.

use super::pipeline::ScheduledPipeline;
use super::relaxation::Relaxation;
use cost::Passes;
use scheduler::placement::Placement;
use smallvec::SmallVec;

/// Orders of actions that a search node leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OpenOrders {
    /// The largest number of sequence slices.
    pub slices: u32,
    /// True if some order has two chains of stages over the same ranks.
    pub has_two_chains: bool,
    /// True if some order has weight gradients apart.
    pub splits: bool,
}

impl OpenOrders {
    /// The orders of one pipeline.
    pub(super) fn of(schedule: &ScheduledPipeline) -> OpenOrders {
        let ScheduledPipeline { kind, ref pipeline } = *schedule;
        OpenOrders {
            slices: pipeline.slices,
            has_two_chains: pipeline.placement == Placement::Bidirectional,
            splits: kind.splits_backward,
        }
    }
}

/// Seconds of each rank before its first action, and after its last one. Weight gradients that are apart may fill the latter, which is 0
/// then.
pub(super) type RankWaits = SmallVec<[Passes; 32]>;

impl Relaxation<'_> {
    /// Lower bounds on the waits of each rank.
    pub(super) fn rank_waits(&self, orders: OpenOrders) -> RankWaits {
        let OpenOrders { slices, has_two_chains, splits } = orders;
        let ranks = self.parallel.pp as usize;
        let mut waits = RankWaits::with_capacity(ranks);
        let mut sum = Passes::default();
        for &block in self.fast.outline.runs.iter().take(ranks) {
            waits.push(sum);
            let profile = &self.fast.profiles[block];
            let (forward, backward) = (profile.f.total(), profile.i.total() + profile.w.total());
            let each = Passes { forward, backward: if splits { 0.0 } else { backward } };
            sum = sum + each.map(|seconds| seconds / f64::from(slices));
        }
        // The first stage of a rank on two chains is on the nearer end of the ranks.
        if has_two_chains {
            for rank in ranks / 2..waits.len() {
                waits[rank] = waits[ranks - 1 - rank];
            }
        }
        waits
    }
}

/// Average over ranks.
pub(super) fn average(waits: &RankWaits) -> Passes {
    let sum = waits.iter().fold(Passes::default(), |sum, wait| sum + *wait);
    sum.map(|seconds| seconds / waits.len().max(1) as f64)
}

/// Least seconds in which ranks, each of which is `busy` for some seconds, run a number of layers that take `each` seconds. A layer is
/// on one rank.
pub(super) fn with_layers(busy: &[f64], layers: usize, each: f64) -> f64 {
    let (ranks, most) = (busy.len() as f64, busy.iter().copied().fold(0.0, f64::max));
    if layers == 0 || each <= 0.0 {
        return most;
    }
    let least = most.max((busy.iter().sum::<f64>() + layers as f64 * each) / ranks);
    let (mut left, mut next) = (layers as f64, SmallVec::<[f64; 32]>::with_capacity(busy.len()));
    for busy in busy {
        let room = ((least - busy) / each + TOLERANCE).floor();
        left -= room;
        next.push(busy + (room + 1.0) * each);
    }
    if left <= 0.0 {
        return least;
    }
    // Within the seconds of one layer, each rank has time for one more.
    let last = (left as usize).min(next.len()) - 1;
    *next.select_nth_unstable_by(last, f64::total_cmp).1
}

/// Rounding error that a number of layers may have.
const TOLERANCE: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_indivisible() {
        let least = |busy: &[f64], layers| with_layers(busy, layers, 1.0);
        let is = |least: f64, exact: f64| assert!((least - exact).abs() < 1e-12, "{least}, {exact}");
        is(least(&[0.0; 4], 8), 2.0);
        is(least(&[0.0; 4], 9), 3.0);
        // Ranks that begin later have room for fewer layers: 2, 1 and 1 in 2.6 s.
        is(least(&[0.0, 0.6, 1.2], 4), 2.2);
        is(least(&[5.0, 0.0], 3), 5.0);
    }
}
