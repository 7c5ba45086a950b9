//! An instance in whole numbers: what can be proved about it must not depend on rounding.

use super::units::Unit;
use super::{Instance, Operation};
use crate::placement::Placement;
use crate::problem::{Objective, Problem};
use ir::schedule::Kind;

/// A job shop in whole numbers of [`Shop::unit`].
///
/// Where the costs have no common unit, durations are rounded down and memory in favour of what fits, so that a bound of
/// the shop is one of the problem.
#[derive(Clone, Debug)]
pub(super) struct Shop {
    /// Units that each operation takes.
    pub(super) long: Vec<i64>,
    /// The rank of each operation.
    pub(super) rank: Vec<usize>,
    /// What each operation needs: (operation, units between its end and this one's start).
    pub(super) after: Vec<Vec<(usize, i64)>>,
    /// Memory taken at the start of each operation.
    pub(super) takes: Vec<i64>,
    /// Memory freed at its end.
    pub(super) frees: Vec<i64>,
    /// The F of the same stage and micro-batch: what takes the memory that I and W free.
    pub(super) forward: Vec<usize>,
    /// The operations of each rank.
    pub(super) of_rank: Vec<Vec<usize>>,
    /// Most memory of each rank.
    pub(super) limit: Vec<Option<i64>>,
    /// What the value of the objective is counted from, on each rank.
    pub(super) origin: Vec<Origin>,
    /// Seconds of one unit.
    pub(super) unit: f64,
    /// Whether nothing is rounded.
    pub(super) exact: bool,
}

/// From when the objective counts the time of a rank.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Origin {
    /// A moment: 0 for the makespan; for the span of one chain when the rank's first operation can start, which is the F
    /// of the first micro-batch.
    At(i64),
    /// The start of the first of these, where two chains meet. The rank may wait before it: a relaxation.
    FirstOf(Vec<usize>),
}

/// The value of the first order, and all memory together, are at most so many units: far below the largest i32, the
/// numbers of the solver.
const MOST_UNITS: f64 = (1_u64 << 28) as f64;

impl Shop {
    /// The shop of an instance; `value` is that of some order.
    pub(super) fn new(problem: &Problem, instance: &Instance, value: f64) -> Shop {
        let operations = &instance.operations;
        let shorter = overlap(problem, instance);
        let seconds = |operation: &Operation| operation.seconds * shorter;
        let lags = operations.iter().flat_map(|operation| operation.after.iter().map(|&(_, lag)| lag));
        let times: Vec<f64> = operations.iter().map(seconds).chain(lags).collect();
        let time = Unit::of(&times, value / MOST_UNITS);
        let kept = operations.iter().flat_map(|operation| [operation.takes, operation.frees]);
        let finite = instance.limit.iter().copied().filter(|limit| limit.is_finite());
        let kept: Vec<f64> = kept.chain(finite).collect();
        let memory = Unit::of(&kept, kept.iter().sum::<f64>() / MOST_UNITS);
        let all = |of: &dyn Fn(&Operation) -> i64| operations.iter().map(of).collect::<Vec<_>>();
        let mut shop = Shop {
            long: all(&|operation| time.floor(seconds(operation))),
            rank: operations.iter().map(|operation| operation.rank).collect(),
            after: (operations.iter())
                .map(|operation| operation.after.iter().map(|&(from, lag)| (from, time.floor(lag))).collect())
                .collect(),
            takes: all(&|operation| memory.floor(operation.takes)),
            frees: all(&|operation| memory.ceil(operation.frees)),
            forward: instance.forwards(),
            of_rank: instance.of_rank.clone(),
            limit: (instance.limit.iter())
                .map(|limit| limit.is_finite().then(|| memory.ceil(limit * (1.0 + 1e-9))))
                .collect(),
            origin: vec![Origin::At(0); instance.limit.len()],
            unit: time.size,
            exact: time.exact && memory.exact && shorter == 1.0,
        };
        if problem.objective == Objective::Span {
            shop.origin = (0..shop.of_rank.len()).map(|rank| shop.first(rank, problem, instance)).collect();
        }
        shop
    }

    /// How many operations there are.
    pub(super) fn len(&self) -> usize {
        self.long.len()
    }

    /// What a rank starts with: where one chain runs, the F of the first micro-batch on the rank's first stage.
    fn first(&self, rank: usize, problem: &Problem, instance: &Instance) -> Origin {
        let operations = &instance.operations;
        let entry = |index: usize| {
            let same = |(from, _): &(usize, f64)| operations[*from].stage == operations[index].stage;
            operations[index].kind == Kind::F && !operations[index].after.iter().any(same)
        };
        let mut firsts: Vec<usize> = self.of_rank[rank].iter().copied().filter(|&index| entry(index)).collect();
        if problem.pipeline.placement == Placement::Bidirectional && firsts.len() > 1 {
            return Origin::FirstOf(firsts);
        }
        firsts.sort_by_key(|&index| operations[index].stage);
        Origin::At(firsts.first().map_or(0, |&index| self.head(index)))
    }

    /// The longest way to the start of an operation.
    fn head(&self, index: usize) -> i64 {
        let ways = self.after[index].iter().map(|&(from, lag)| self.head(from) + self.long[from] + lag);
        ways.max().unwrap_or(0)
    }
    /// The value of an order in units; `None` if it cannot be run, or if its spans count from what it runs first.
    pub(super) fn value(&self, orders: &[Vec<usize>]) -> Option<i64> {
        let mut end: Vec<Option<i64>> = vec![None; self.len()];
        let (mut place, mut free) = (vec![0; orders.len()], vec![0; orders.len()]);
        let mut moved = true;
        while moved {
            moved = false;
            for (rank, order) in orders.iter().enumerate() {
                while let Some(&index) = order.get(place[rank]) {
                    let mut arrivals = self.after[index].iter().map(|&(from, lag)| Some(end[from]? + lag));
                    let Some(arrival) = arrivals.try_fold(0, |most, next| Some(most.max(next?))) else { break };
                    free[rank] = arrival.max(free[rank]) + self.long[index];
                    end[index] = Some(free[rank]);
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

/// By how much all times are shorter where F and B may overlap: then an F and a B of any stages, one after the other, take
/// no longer than their pair, so that an order without pairs that is in no operation later follows from one with pairs.
fn overlap(problem: &Problem, instance: &Instance) -> f64 {
    let costs = problem.costs;
    let forward = costs.f.iter().copied().fold(0.0, f64::max);
    let backward = costs.i.iter().zip(&costs.w).map(|(i, w)| i + w).fold(0.0, f64::max);
    match instance.pair {
        Some(pair) if pair < forward + backward => pair / (forward + backward),
        _ => 1.0,
    }
}
