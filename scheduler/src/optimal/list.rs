//! List scheduling: quick orders for any placement and limit, for the search to start from.
//!
//! Each rank does what can start first; among equals I before F before W. An F of a micro-batch that is new to the rank
//! starts only if there is room for all its F there beside those of the micro-batches that have begun. So every
//! micro-batch that has begun can go on to its end, and no rank waits for room for ever (Dijkstra's banker).

use super::Instance;
use ir::schedule::{Kind, Schedule};
use std::collections::{BTreeMap, BTreeSet};

/// Orders with different numbers of micro-batches in flight on a rank, and with W as soon or as late as may be.
pub(super) fn orders(instance: &Instance) -> impl Iterator<Item = Schedule> {
    let microbatches = instance.operations.last().map_or(0, |operation| operation.microbatch + 1);
    let ranks = instance.of_rank.len();
    let mut flights = vec![microbatches, 2 * ranks, ranks + 1, ranks, ranks.div_ceil(2) + 1];
    let mut seen = BTreeSet::new();
    flights.retain(|&flight| flight <= microbatches && seen.insert(flight));
    let variants = flights.into_iter().flat_map(|flight| [(flight, true), (flight, false)]);
    variants.filter_map(|(flight, late)| Listing::new(instance, flight, late).run())
}

struct Listing<'a> {
    instance: &'a Instance,
    /// The most micro-batches in flight on a rank.
    flight: usize,
    /// Whether a W waits until nothing else can start.
    late: bool,
    /// For each rank, the operations of each stage and kind that are left, last first.
    queues: Vec<Vec<Vec<usize>>>,
    end: Vec<Option<f64>>,
    free: Vec<f64>,
    held: Vec<f64>,
    /// For each rank and micro-batch that has begun: what its F that are left take, and how many operations are left.
    begun: Vec<BTreeMap<usize, (f64, usize)>>,
    orders: Vec<Vec<usize>>,
}

impl<'a> Listing<'a> {
    fn new(instance: &'a Instance, flight: usize, late: bool) -> Listing<'a> {
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
            queues: queues.collect(),
            end: vec![None; instance.operations.len()],
            free: vec![0.0; ranks],
            held: vec![0.0; ranks],
            begun: vec![BTreeMap::new(); ranks],
            orders: vec![Vec::new(); ranks],
        }
    }

    /// The rows; `None` if a limit has no room for one micro-batch.
    fn run(mut self) -> Option<Schedule> {
        for _ in 0..self.instance.operations.len() {
            let next = (0..self.orders.len()).filter_map(|rank| self.next(rank));
            let (start, _, rank, queue) = next.min_by(|a, b| a.0.total_cmp(&b.0))?;
            self.place(start, rank, queue);
        }
        Some(self.instance.schedule(&self.orders))
    }

    /// What a rank does next: (start, preference, rank, queue).
    fn next(&self, rank: usize) -> Option<(f64, usize, usize, usize)> {
        let queues = self.queues[rank].iter().enumerate();
        let heads = queues.filter_map(|(queue, left)| Some((queue, *left.last()?)));
        let startable = heads.filter_map(|(queue, index)| {
            let operation = &self.instance.operations[index];
            let mut arrivals = operation.after.iter().map(|&(from, hop)| Some(self.end[from]? + hop));
            let arrival = arrivals.try_fold(0.0_f64, |latest, arrival| Some(latest.max(arrival?)))?;
            let preference = match operation.kind {
                Kind::W if self.late => 3,
                Kind::W => 0,
                Kind::F => 2,
                _ => 1,
            };
            let fits = operation.kind != Kind::F || self.has_room(rank, index);
            fits.then_some((arrival.max(self.free[rank]), preference, rank, queue))
        });
        startable.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
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

    /// What the F of a micro-batch take on a rank.
    fn taken_by(&self, rank: usize, microbatch: usize) -> f64 {
        self.of(rank, microbatch).iter().map(|&index| self.instance.operations[index].takes).sum()
    }

    /// The operations of a micro-batch on a rank; a rank's stand in the order of the micro-batches.
    fn of(&self, rank: usize, microbatch: usize) -> &'a [usize] {
        let (all, operations) = (&self.instance.of_rank[rank], &self.instance.operations);
        let from = all.partition_point(|&index| operations[index].microbatch < microbatch);
        let count = all[from..].partition_point(|&index| operations[index].microbatch == microbatch);
        &all[from..from + count]
    }

    fn place(&mut self, start: f64, rank: usize, queue: usize) {
        let Some(index) = self.queues[rank][queue].pop() else { return };
        let operation = &self.instance.operations[index];
        let whole = (self.taken_by(rank, operation.microbatch), self.of(rank, operation.microbatch).len());
        let (takes, left) = self.begun[rank].entry(operation.microbatch).or_insert(whole);
        *takes -= operation.takes;
        *left -= 1;
        if *left == 0 {
            self.begun[rank].remove(&operation.microbatch);
        }
        self.held[rank] += operation.takes - operation.frees;
        self.free[rank] = start + operation.seconds;
        self.end[index] = Some(self.free[rank]);
        self.orders[rank].push(index);
    }
}
