//! An instance in integers, so that proofs do not depend on rounding.

use super::units::Unit;
use super::{Instance, Operation, OrderEntry};
use crate::placement::{Pipeline, Placement};
use crate::problem::{Objective, Problem};
use ir::schedule::Kind;

/// A job shop with integer times in [`Shop::unit`].
///
/// If the costs have no common unit, durations are rounded down, and memory is rounded so that more fits. A bound of the shop
/// is then also a bound of the problem.
#[derive(Clone, Debug)]
pub(super) struct Shop {
    /// Length of each operation by itself, in units.
    pub(super) long: Vec<i64>,
    /// Length of an overlapped pair in units, if there are pairs.
    pub(super) pair: Option<i64>,
    /// For each F the B or I with which an overlapped pair is shorter than a sequence.
    pub(super) partners: Vec<Vec<usize>>,
    /// The W of each I.
    pub(super) weights: Vec<Option<usize>>,
    /// For each W, the W of earlier micro-batches after which it runs if it is in no pair. Empty without pairs.
    pub(super) behind: Vec<Vec<usize>>,
    /// The rank of each operation.
    pub(super) rank: Vec<usize>,
    /// Predecessors of each operation: (operation, units between its end and the start of this one).
    pub(super) after: Vec<Vec<(usize, i64)>>,
    /// Memory taken at the start of each operation.
    pub(super) takes: Vec<i64>,
    /// Memory freed at the end of each operation.
    pub(super) frees: Vec<i64>,
    /// The F of the same stage and micro-batch, whose memory I and W free.
    pub(super) forward: Vec<usize>,
    /// The operations of each rank.
    pub(super) of_rank: Vec<Vec<usize>>,
    /// Memory limit of each rank.
    pub(super) limit: Vec<Option<i64>>,
    /// Time from which the objective counts, on each rank.
    pub(super) origin: Vec<Origin>,
    /// Seconds of one unit.
    pub(super) unit: f64,
    /// True if no number was rounded.
    pub(super) exact: bool,
}

/// Time from which the objective counts the time of a rank.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Origin {
    /// A fixed time: 0 for the makespan. For the span of one chain, the earliest start of the rank's first operation, the F of
    /// the first micro-batch.
    At(i64),
    /// The first start of these operations, with two chains. The rank may wait before it: a relaxation.
    FirstOf(Vec<usize>),
}

/// Largest value of the first order, and largest total memory, in units: far below the largest i32, the solver's number type.
const MOST_UNITS: f64 = (1_u64 << 28) as f64;

impl Shop {
    /// Builds the shop of an instance; `value` is that of some order.
    pub(super) fn new(problem: &Problem, instance: &Instance, value: f64) -> Shop {
        Shop::in_units(problem, instance, value, MOST_UNITS)
    }

    /// Builds the shop with a unit in which `value` is at most `most` units.
    pub(super) fn in_units(problem: &Problem, instance: &Instance, value: f64, most: f64) -> Shop {
        let operations = &instance.operations;
        let seconds = operations.iter().map(|operation| operation.seconds);
        let lags = operations.iter().flat_map(|operation| operation.after.iter().map(|&(_, lag)| lag));
        let times: Vec<f64> = seconds.chain(lags).chain(instance.pair).collect();
        let time = Unit::of(&times, value / most);
        let kept = operations.iter().flat_map(|operation| [operation.takes, operation.frees]);
        let finite = instance.limit.iter().copied().filter(|limit| limit.is_finite());
        let kept: Vec<f64> = kept.chain(finite).collect();
        let memory = Unit::of(&kept, kept.iter().sum::<f64>() / MOST_UNITS);

        let mut shop = Shop {
            long: operations.iter().map(|operation| time.floor(operation.seconds)).collect(),
            pair: instance.pair.map(|pair| time.floor(pair)),
            partners: vec![Vec::new(); operations.len()],
            weights: (0..operations.len()).map(|index| instance.weights(index)).collect(),
            behind: vec![Vec::new(); operations.len()],
            rank: operations.iter().map(|operation| operation.rank).collect(),
            after: (operations.iter())
                .map(|operation| operation.after.iter().map(|&(from, lag)| (from, time.floor(lag))).collect())
                .collect(),
            takes: operations.iter().map(|operation| memory.floor(operation.takes)).collect(),
            frees: operations.iter().map(|operation| memory.ceil(operation.frees)).collect(),
            forward: instance.forwards(),
            of_rank: instance.of_rank.clone(),
            limit: (instance.limit.iter())
                .map(|limit| limit.is_finite().then(|| memory.ceil(limit * (1.0 + 1e-9))))
                .collect(),
            origin: vec![Origin::At(0); instance.limit.len()],
            unit: time.size,
            exact: time.exact && memory.exact,
        };
        if instance.pair.is_some() {
            shop.pair_up(problem.pipeline, instance);
        }
        if problem.objective == Objective::Span {
            let heads = shop.heads();
            shop.origin = (0..shop.of_rank.len()).map(|rank| shop.first(rank, &heads, problem, instance)).collect();
        }
        shop
    }

    /// Finds the B or I that each F may overlap, and the W that each W follows.
    ///
    /// Within a direction the F is of a later micro-batch, since the B of a micro-batch needs all F before its own.
    fn pair_up(&mut self, pipeline: &Pipeline, instance: &Instance) {
        for rank in &self.of_rank {
            for &index in rank {
                let one = &instance.operations[index];
                for &other in rank {
                    let two = &instance.operations[other];
                    let is_later = one.microbatch > two.microbatch;
                    let same_way = pipeline.goes_up(one.microbatch as u32) == pipeline.goes_up(two.microbatch as u32);
                    match (one.kind, two.kind) {
                        (Kind::F, Kind::I | Kind::B) if (is_later || !same_way) && self.gains(index, other) => {
                            self.partners[index].push(other);
                        }
                        (Kind::W, Kind::W) if is_later && same_way && one.stage == two.stage => {
                            self.behind[index].push(other);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Returns whether a pair is shorter than its operations in sequence.
    fn gains(&self, forward: usize, backward: usize) -> bool {
        let weights = self.weights[backward].map_or(0, |weights| self.long[weights]);
        self.pair.is_some_and(|pair| pair < self.long[forward] + self.long[backward] + weights)
    }

    /// Converts a bound in seconds to units. If durations were rounded down, the fraction of a unit is dropped.
    pub(super) fn units_within(&self, bound: f64) -> i64 {
        let units = bound / self.unit;
        if self.exact { (units - 1e-6).ceil() as i64 } else { units.floor() as i64 }
    }

    /// Returns the number of operations.
    pub(super) fn len(&self) -> usize {
        self.long.len()
    }

    /// Returns the origin of a rank: with one chain, the F of the first micro-batch on the rank's first stage.
    fn first(&self, rank: usize, heads: &[i64], problem: &Problem, instance: &Instance) -> Origin {
        let operations = &instance.operations;
        let own = self.of_rank[rank].iter().copied();
        let mut firsts: Vec<usize> = own.filter(|&index| is_first_forward(operations, index)).collect();
        if problem.pipeline.placement == Placement::Bidirectional && firsts.len() > 1 {
            return Origin::FirstOf(firsts);
        }
        firsts.sort_by_key(|&index| operations[index].stage);
        Origin::At(firsts.first().map_or(0, |&index| heads[index]))
    }

    /// Returns the longest path to the start of each operation. Operations are in topological order.
    fn heads(&self) -> Vec<i64> {
        let mut heads: Vec<i64> = Vec::with_capacity(self.len());
        for after in &self.after {
            let ways = after.iter().map(|&(from, lag)| heads[from] + self.long[from] + lag);
            heads.push(ways.max().unwrap_or(0));
        }
        heads
    }

    /// Returns the value of an order in units, or `None` if the order deadlocks or its spans count from a first start.
    pub(super) fn value(&self, orders: &[Vec<OrderEntry>]) -> Option<i64> {
        let mut end: Vec<Option<i64>> = vec![None; self.len()];
        let (mut place, mut free) = (vec![0; orders.len()], vec![0; orders.len()]);
        let mut moved = true;
        while moved {
            moved = false;
            for (rank, order) in orders.iter().enumerate() {
                while let Some(step) = order.get(place[rank]) {
                    let (done, long) = match *step {
                        OrderEntry::One(index) => ([Some(index), None, None], self.long[index]),
                        OrderEntry::Pair(forward, backward) => {
                            ([Some(forward), Some(backward), self.weights[backward]], self.pair?)
                        }
                    };
                    let needs = done[..2].iter().flatten().flat_map(|&index| &self.after[index]);
                    let mut arrivals = needs.map(|&(from, lag)| Some(end[from]? + lag));
                    let Some(arrival) = arrivals.try_fold(0, |most, next| Some(most.max(next?))) else { break };
                    free[rank] = arrival.max(free[rank]) + long;
                    done.into_iter().flatten().for_each(|index| end[index] = Some(free[rank]));
                    place[rank] += 1;
                    moved = true;
                }
            }
        }
        let whole = place.iter().zip(orders).all(|(&place, order)| place == order.len());
        let spans = free.iter().zip(&self.origin).map(|(&free, origin)| match origin {
            Origin::At(moment) => Some(free - moment),
            Origin::FirstOf(_) => None,
        });
        spans.collect::<Option<Vec<i64>>>().filter(|_| whole)?.into_iter().max()
    }
}

/// Returns whether an operation is the F that runs first of its stage and direction.
fn is_first_forward(operations: &[Operation], index: usize) -> bool {
    let operation = &operations[index];
    operation.kind == Kind::F && operation.after.iter().all(|&(from, _)| operations[from].stage != operation.stage)
}
