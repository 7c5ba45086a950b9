//! List scheduling: quick initial orders for the search, for any placement and memory limit.
//!
//! Each rank runs the operation that can start first; ties prefer I, then F, then W. An F of a micro-batch that is new to
//! the rank starts only under a reservation. All F of that micro-batch on the rank must fit in addition to those of the
//! micro-batches that have begun. So every micro-batch that has begun can finish, and no rank waits for memory forever
//! (Dijkstra's banker).
//!
//! If an F and a backward are faster as an overlapped pair, a rank may wait some time for the later of the two.

use super::{Instance, OrderEntry};
use crate::problem::is_over;
use ir::schedule::{Kind, Schedule};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Yields orders with different numbers of micro-batches in flight per rank, and with W as early or as late as possible. Ranks
/// wait for pairs not at all or as long as the pairs save, or there are no pairs. Orders not finished by the deadline are left
/// out.
pub(super) fn orders(instance: &Instance, deadline: Option<Instant>) -> impl Iterator<Item = Schedule> {
    let microbatches = instance.operations.last().map_or(0, |operation| operation.microbatch + 1);
    let ranks = instance.of_rank.len();
    let mut flights = vec![microbatches, 2 * ranks, ranks + 1, ranks, ranks.div_ceil(2) + 1];
    let mut seen = BTreeSet::new();
    flights.retain(|&flight| flight <= microbatches && seen.insert(flight));
    let waits = if instance.pair.is_some() { &[None, Some(0.0), Some(1.0)][..] } else { &[None] };
    let variants = flights.into_iter().flat_map(|flight| [(flight, true), (flight, false)]);
    let variants = variants.flat_map(move |(flight, late)| waits.iter().map(move |&wait| (flight, late, wait)));
    variants.filter_map(move |(flight, late, wait)| Listing::new(instance, flight, late, wait).run(deadline))
}

struct Listing<'a> {
    instance: &'a Instance,
    /// Largest number of micro-batches in flight on a rank.
    flight: usize,
    /// True if a W waits until nothing else can start.
    late: bool,
    /// Time that a rank waits for a pair, as a multiple of the time that the pair saves; `None` for no pairs.
    wait: Option<f64>,
    /// Operations left of each rank, by stage and kind, last first.
    queues: Vec<Vec<Vec<usize>>>,
    end: Vec<Option<f64>>,
    free: Vec<f64>,
    held: Vec<f64>,
    /// For each rank and each micro-batch begun on it: memory taken by its F that are left, and number of operations left.
    begun: Vec<BTreeMap<usize, (f64, usize)>>,
    orders: Vec<Vec<OrderEntry>>,
}

/// A candidate for the next action of a rank.
#[derive(Clone, Copy)]
struct Next {
    start: f64,
    rank: usize,
    step: OrderEntry,
}

impl<'a> Listing<'a> {
    fn new(instance: &'a Instance, flight: usize, late: bool, wait: Option<f64>) -> Listing<'a> {
        let queues = instance.of_rank.iter().map(|rank| {
            let mut queues: BTreeMap<(usize, Kind), Vec<usize>> = BTreeMap::new();
            for &index in rank.iter().rev() {
                let operation = &instance.operations[index];
                queues.entry((operation.stage, operation.kind)).or_default().push(index);
            }
            queues.into_values().collect()
        });
        let ranks = instance.of_rank.len();
        Listing {
            instance,
            flight,
            late,
            wait,
            queues: queues.collect(),
            end: vec![None; instance.operations.len()],
            free: vec![0.0; ranks],
            held: vec![0.0; ranks],
            begun: vec![BTreeMap::new(); ranks],
            orders: vec![Vec::new(); ranks],
        }
    }

    /// Returns the schedule, or `None` if a limit does not admit one micro-batch or the deadline passes.
    fn run(mut self, deadline: Option<Instant>) -> Option<Schedule> {
        while self.queues.iter().flatten().any(|queue| !queue.is_empty()) {
            let next = (0..self.orders.len()).filter_map(|rank| self.next(rank));
            self.place(next.min_by(|a, b| a.start.total_cmp(&b.start))?);
            if is_over(deadline) {
                return None;
            }
        }
        Some(self.instance.schedule(&self.orders))
    }

    /// Returns the next action of a rank.
    fn next(&self, rank: usize) -> Option<Next> {
        let alone = self.startable(rank).map(|(index, start)| {
            let preference = match self.instance.operations[index].kind {
                Kind::W if self.late => 3,
                Kind::W => 0,
                Kind::F => 2,
                _ => 1,
            };
            (start, preference, index)
        });
        let (start, _, index) = alone.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
        Some(self.pair(rank, start).unwrap_or(Next { start, rank, step: OrderEntry::One(index) }))
    }

    /// Returns the heads of a rank's queues that can run next, with their earliest starts.
    fn startable(&self, rank: usize) -> impl Iterator<Item = (usize, f64)> {
        self.queues[rank].iter().filter_map(move |queue| {
            let &index = queue.last()?;
            let operation = &self.instance.operations[index];
            let mut arrivals = operation.after.iter().map(|&(from, hop)| Some(self.end[from]? + hop));
            let arrival = arrivals.try_fold(0.0_f64, |latest, arrival| Some(latest.max(arrival?)))?;
            let fits = operation.kind != Kind::F || self.has_room(rank, index);
            fits.then_some((index, arrival.max(self.free[rank])))
        })
    }

    fn startable_of(&self, rank: usize, kinds: &'static [Kind]) -> impl Iterator<Item = (usize, f64)> {
        self.startable(rank).filter(move |&(index, _)| kinds.contains(&self.instance.operations[index].kind))
    }

    /// Returns the pair that can start first if the rank waits for it, given that another action can start at `first`.
    fn pair(&self, rank: usize, first: f64) -> Option<Next> {
        let wait = self.wait?;
        let forwards = self.startable_of(rank, &[Kind::F]);
        let pairs = forwards.flat_map(|a| self.startable_of(rank, &[Kind::I, Kind::B]).map(move |b| (a, b)));
        let waited_for = pairs.filter_map(|((forward, one), (backward, other))| {
            let (start, gain) = (one.max(other), self.instance.gain(forward, backward));
            let worth = gain > 0.0 && start <= first + wait * gain;
            worth.then_some(Next { start, rank, step: OrderEntry::Pair(forward, backward) })
        });
        waited_for.min_by(|a, b| a.start.total_cmp(&b.start))
    }

    fn has_room(&self, rank: usize, index: usize) -> bool {
        let microbatch = self.instance.operations[index].microbatch;
        if self.begun[rank].contains_key(&microbatch) {
            return true;
        }
        let promised: f64 = self.begun[rank].values().map(|(takes, _)| takes).sum();
        let all = self.held[rank] + promised + self.taken_by(rank, microbatch);
        self.begun[rank].len() < self.flight && all <= self.instance.limit[rank] * (1.0 + 1e-9)
    }

    /// Returns the memory that the F of a micro-batch take on a rank.
    fn taken_by(&self, rank: usize, microbatch: usize) -> f64 {
        self.of(rank, microbatch).iter().map(|&index| self.instance.operations[index].takes).sum()
    }

    /// Returns the operations of a micro-batch on a rank. A rank's operations are sorted by micro-batch.
    fn of(&self, rank: usize, microbatch: usize) -> &'a [usize] {
        let (all, operations) = (&self.instance.of_rank[rank], &self.instance.operations);
        let from = all.partition_point(|&index| operations[index].microbatch < microbatch);
        let count = all[from..].partition_point(|&index| operations[index].microbatch == microbatch);
        &all[from..from + count]
    }

    fn place(&mut self, Next { start, rank, step, .. }: Next) {
        let (done, seconds) = match step {
            OrderEntry::One(index) => ([Some(index), None, None], self.instance.operations[index].seconds),
            OrderEntry::Pair(forward, backward) => {
                ([Some(forward), Some(backward), self.instance.weights(backward)], self.instance.pair.unwrap_or(0.0))
            }
        };
        self.free[rank] = start + seconds;
        done.into_iter().flatten().for_each(|index| self.finish(index));
        self.orders[rank].push(step);
    }

    /// Records the end of an operation.
    fn finish(&mut self, index: usize) {
        let operation = &self.instance.operations[index];
        let rank = operation.rank;
        let queues = &mut self.queues[rank];
        match queues.iter_mut().find(|queue| queue.last() == Some(&index)) {
            Some(queue) => drop(queue.pop()),
            // A W in a pair runs ahead of others.
            None => queues.iter_mut().for_each(|queue| queue.retain(|&other| other != index)),
        }
        let whole = (self.taken_by(rank, operation.microbatch), self.of(rank, operation.microbatch).len());
        let (takes, left) = self.begun[rank].entry(operation.microbatch).or_insert(whole);
        *takes -= operation.takes;
        *left -= 1;
        if *left == 0 {
            self.begun[rank].remove(&operation.microbatch);
        }
        self.held[rank] += operation.takes - operation.frees;
        self.end[index] = Some(self.free[rank]);
    }
}
