//! An instance in whole numbers: what can be proved about it must not depend on rounding.

use super::Instance;
use super::units::Unit;
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
}

/// From when the objective counts the time of a rank.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Origin {
    /// A moment: 0 for the makespan, for the span when the rank's first operation can start. One chain starts there: what
    /// comes first on each rank is the F of the first micro-batch, and before it nothing else.
    At(i64),
    /// The start of the first of these, where two chains meet.
    FirstOf(Vec<usize>),
}

/// Sums of so many units stay far below the largest i32, the numbers of the solver.
const MOST_UNITS: f64 = (1_u64 << 28) as f64;

/// Memory is counted in so many units of the largest limit at most.
const MOST_MEMORY: f64 = (1_u64 << 24) as f64;

impl Shop {
    /// The shop of an instance.
    pub(super) fn new(problem: &Problem, instance: &Instance) -> Shop {
        let operations = &instance.operations;
        let lags = operations.iter().flat_map(|operation| operation.after.iter().map(|&(_, lag)| lag));
        let times: Vec<f64> = operations.iter().map(|operation| operation.seconds).chain(lags).collect();
        let time = Unit::of(&times, times.iter().sum::<f64>() / MOST_UNITS);
        let kept = operations.iter().flat_map(|operation| [operation.takes, operation.frees]);
        let finite = instance.limit.iter().copied().filter(|limit| limit.is_finite());
        let most = finite.clone().fold(0.0, f64::max);
        let memory = Unit::of(&kept.chain(finite).collect::<Vec<_>>(), most / MOST_MEMORY);
        let all = |of: &dyn Fn(&super::Operation) -> i64| operations.iter().map(of).collect::<Vec<_>>();
        let mut shop = Shop {
            long: all(&|operation| time.floor(operation.seconds)),
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

    /// From when the span of a rank counts.
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
}
