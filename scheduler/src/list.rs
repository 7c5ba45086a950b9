//! List scheduling of a chain or a V under a memory limit. At each time, every free rank starts an action that has arrived
//! and fits.
//!
//! In a V, an F of the first chunk runs only if an F of the second also fits, in addition to those reserved for earlier
//! first-chunk F. So no rank fills up with forwards whose backwards cannot run. Once the older micro-batches are done, the
//! oldest one left can always proceed. Therefore every limit that admits one forward of each stage suffices.

mod messages;
mod rank;
mod wakes;

use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::Kind;
use messages::Messages;
use rank::Rank;
use wakes::Wakes;

/// Rule by which a rank picks its next action.
#[derive(Clone, Copy)]
struct PriorityRule {
    /// True if a rank delays a W that would hold up an arriving F or I.
    patient: bool,
    /// True if F comes before I.
    forward: bool,
    /// Whether, in a V, an F of the first chunk may run before memory for one of the second is free.
    eager: bool,
}

impl PriorityRule {
    /// Returns all rules that differ on this pipeline.
    fn all(pipeline: &Pipeline) -> impl Iterator<Item = PriorityRule> + use<> {
        let both = [true, false];
        let eager = if pipeline.chunks > 1 { &[true, false][..] } else { &[false] };
        let pairs = both.into_iter().flat_map(move |patient| both.map(|forward| (patient, forward)));
        pairs.flat_map(|(patient, forward)| eager.iter().map(move |&eager| PriorityRule { patient, forward, eager }))
    }
}

/// Actions of a rank, as kinds and chunks. Actions of one kind and chunk run in the order of the micro-batches.
pub(crate) type Row = Vec<(Kind, u8)>;

/// Result of one priority rule.
pub(crate) struct Listed {
    /// Longest time of a rank from its first start to its last end, in seconds.
    pub span: f64,
    pub rows: Vec<Row>,
}

/// Yields the results of the priority rules in a chain, or in a V of two chunks, in the order of the rules. Results whose span
/// is more than [`FAR`] epsilons above `least` or above another span are left out. They never change the choice of a caller
/// that takes the first result of the least span, up to an epsilon.
pub(crate) fn lists(
    costs: &StageCosts,
    pipeline: &Pipeline,
    limit: &[f64],
    mut least: f64,
    epsilon: f64,
) -> impl Iterator<Item = Listed> + use<> {
    let mut orders: Vec<(usize, PriorityRule)> = PriorityRule::all(pipeline).enumerate().collect();
    orders.sort_by_key(|(_, order)| (order.eager, order.forward, order.patient)); // the best are mostly among the first
    let mut found: Vec<Option<Listed>> = orders.iter().map(|_| None).collect();
    for (at, order) in orders {
        let enough = least + FAR * epsilon;
        found[at] = match pipeline.chunks {
            1 => List::<2>::new(costs, pipeline, limit, order).run(enough),
            _ => List::<4>::new(costs, pipeline, limit, order).run(enough),
        };
        least = found[at].as_ref().map_or(least, |listed| listed.span.min(least));
    }
    found.into_iter().flatten()
}

struct List<const N: usize> {
    patient: bool,
    ranks: Vec<Rank<N>>,
    messages: Messages<N>,
    wakes: Wakes,
}

impl<const N: usize> List<N> {
    fn new(costs: &StageCosts, pipeline: &Pipeline, limit: &[f64], order: PriorityRule) -> List<N> {
        let mut ranks: Vec<Rank<N>> =
            (0..pipeline.ranks).map(|rank| Rank::new(costs, pipeline, limit[rank as usize], order, rank)).collect();
        let messages = Messages::new(costs, pipeline, &rank::sorts(order));
        ranks.iter_mut().enumerate().for_each(|(at, rank)| rank.arrives = messages.first(at));
        List { patient: order.patient, ranks, messages, wakes: Wakes::new(pipeline.ranks as usize) }
    }

    /// Runs the list scheduler, or returns `None` once the span is known to exceed `enough`.
    fn run(mut self, enough: f64) -> Option<Listed> {
        let enough = enough * (1.0 + ROUNDING);
        if self.ranks.iter().any(|rank| rank.least > enough) {
            return None;
        }
        while let Some((time, rank)) = self.wakes.first() {
            self.look(rank, time);
            if self.ranks[rank].least > enough {
                return None;
            }
        }
        let span = self.ranks.iter().map(Rank::span).fold(0.0, f64::max);
        Some(Listed { span, rows: self.ranks.iter().map(Rank::row).collect() })
    }

    /// Starts an action on a free rank, or sets its next wake-up.
    fn look(&mut self, rank: usize, time: f64) {
        let here = &mut self.ranks[rank];
        if let Some(sort) = here.arrived_by(time) {
            return self.start(rank, sort, time);
        }
        let waits = here
            .next_weight()
            .is_none_or(|seconds| self.patient && here.arrived_by((time + seconds).next_down()).is_some());
        if waits {
            return self.wakes.set(rank, here.next_arrival());
        }
        here.start_weight(time);
        self.wakes.set(rank, here.now);
    }

    fn start(&mut self, rank: usize, sort: usize, time: f64) {
        let here = &mut self.ranks[rank];
        let nth = here.started[sort];
        here.start(sort, time);
        here.arrives[sort] = self.messages.arrival(rank, sort, nth + 1);
        self.wakes.set(rank, here.now);
        let Some((other, sort, arrival)) = self.messages.send(rank, sort, nth, here.now) else { return };
        let there = &mut self.ranks[other];
        there.arrives[sort] = there.arrives[sort].min(arrival);
        if other != rank && there.now <= time {
            self.wakes.hasten(other, arrival);
        }
    }
}

/// Relative difference below which two times count as equal.
const ROUNDING: f64 = 1e-9;

/// Larger than the number of spans to choose from, so that a sequence of differences below an epsilon cannot add up to this
/// number.
const FAR: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;

    #[test]
    fn only_what_cannot_be_the_least_is_left_out() {
        for ranks in [1, 2, 3, 5, 8] {
            for placement in [Placement::Chain, Placement::V] {
                let pipeline = Pipeline { chunks: placement.chunks(), ..Pipeline::new(placement, ranks, 12) };
                let mut costs = StageCosts::uniform(pipeline.stages(), 10.0, 11.0, 7.0, 1.0);
                costs.f.iter_mut().step_by(3).for_each(|seconds| *seconds += 2.0);
                let limit = vec![f64::from(ranks + 1); ranks as usize];
                let spans = |least: f64, epsilon: f64| -> Vec<f64> {
                    lists(&costs, &pipeline, &limit, least, epsilon).map(|listed| listed.span).collect()
                };
                let all = spans(f64::INFINITY, f64::INFINITY);
                assert_eq!(all.len(), PriorityRule::all(&pipeline).count());
                let least = all.iter().copied().fold(f64::INFINITY, f64::min);
                let near = |spans: Vec<f64>| spans.into_iter().filter(|span| *span <= least).collect::<Vec<f64>>();
                assert_eq!(near(spans(f64::INFINITY, 1e-9)), near(all), "{placement} on {ranks}");
                assert!(spans(0.9 * least, 1e-9).is_empty(), "{placement} on {ranks}");
            }
        }
    }
}
