//! Completion that may depart from the pattern's order. If the next operation of a rank has not arrived, one of those close
//! behind it runs.

use super::fill::{Filled, Gaps};
use super::shape::Shape;
use crate::optimal::Instance;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Runs the path operations of each rank in approximately the order given, with W in between, by increasing time.
///
/// A free rank runs the first of its next `ahead` operations that has arrived. An F runs only if the skipped F before it would
/// still fit in memory. If no operation has arrived, a W runs if `gaps` permits it before the next known arrival. Returns
/// `None` if memory stays short.
pub(super) fn run_ahead(
    instance: &Instance,
    shape: &Shape,
    orders: &[Vec<usize>],
    gaps: Gaps,
    ahead: usize,
) -> Option<Filled> {
    let mut run = Run {
        instance,
        shape,
        gaps,
        ahead,
        ends: vec![f64::NAN; instance.operations.len()],
        ranks: orders.iter().map(|order| Rank::new(order)).collect(),
        wakes: BinaryHeap::new(),
    };
    for rank in 0..shape.ranks {
        run.wake(rank, 0.0);
    }
    while let Some(Reverse((Time(time), rank))) = run.wakes.pop() {
        if run.ranks[rank].free <= time {
            run.decide(rank, time);
        }
    }
    run.finish()
}

struct Run<'a> {
    instance: &'a Instance,
    shape: &'a Shape,
    gaps: Gaps<'a>,
    ahead: usize,
    /// Ends of the operations that have started; NaN for the rest.
    ends: Vec<f64>,
    ranks: Vec<Rank<'a>>,
    /// Times at which a rank becomes free or an input arrives.
    wakes: BinaryHeap<Reverse<(Time, usize)>>,
}

struct Rank<'a> {
    row: Vec<usize>,
    /// The next operations in order; a rank may have run some later ones already.
    near: VecDeque<usize>,
    rest: &'a [usize],
    weights: VecDeque<usize>,
    start: f64,
    free: f64,
    idle: f64,
    held: f64,
}

impl<'a> Rank<'a> {
    fn new(order: &'a [usize]) -> Rank<'a> {
        let row = Vec::with_capacity(order.len() * 3 / 2);
        let (near, weights) = (VecDeque::new(), VecDeque::new());
        Rank { row, near, rest: order, weights, start: 0.0, free: 0.0, idle: 0.0, held: 0.0 }
    }

    fn refill(&mut self, ahead: usize) {
        while self.near.len() < ahead
            && let Some((&next, rest)) = self.rest.split_first()
        {
            self.near.push_back(next);
            self.rest = rest;
        }
    }

    /// Returns whether no operation before a place is of the same class.
    fn is_in_turn(&self, place: usize, shape: &Shape) -> bool {
        let class = self.near[place] % shape.per_stream;
        self.near.range(..place).all(|earlier| earlier % shape.per_stream != class)
    }

    fn is_done(&self) -> bool {
        self.near.is_empty() && self.rest.is_empty() && self.weights.is_empty()
    }
}

/// Next action of a rank.
enum Next {
    /// Run the operation at this index of `near`.
    Run(usize),
    /// Wait until this time, the earliest known arrival; infinite if none is known.
    Wait(f64),
    /// The next F needs memory that only W free.
    Short,
}

impl Run<'_> {
    fn wake(&mut self, rank: usize, time: f64) {
        self.wakes.push(Reverse((Time(time), rank)));
    }

    fn decide(&mut self, rank: usize, time: f64) {
        self.ranks[rank].refill(self.ahead);
        let weight = self.ranks[rank].weights.front().map(|&weight| (weight, self.instance.operations[weight].seconds));
        match (self.next(rank, time), weight) {
            (Next::Run(place), _) => {
                let operation = self.ranks[rank].near.remove(place).expect("a place that was found");
                self.start(rank, operation, time);
            }
            (Next::Short, Some((weight, _))) => self.start_weight(rank, weight, time),
            (Next::Wait(arrival), Some((weight, seconds)))
                if self.gaps.filled(rank, seconds, arrival - time, self.ranks[rank].idle) =>
            {
                self.start_weight(rank, weight, time);
            }
            _ => {} // the arrival that the rank waits for wakes it
        }
    }

    fn next(&self, rank: usize, time: f64) -> Next {
        let state = &self.ranks[rank];
        let limit = self.instance.limit[rank] * (1.0 + 1e-9);
        let (mut skipped, mut soonest, mut short) = (0.0, f64::INFINITY, false);
        for (place, &operation) in state.near.iter().enumerate() {
            let arrival = self.arrival(operation);
            let takes = self.instance.operations[operation].takes;
            if arrival < soonest {
                let fits = takes <= 0.0 || state.held + skipped + takes <= limit;
                if !fits {
                    short |= place == 0 && arrival <= time;
                } else if state.is_in_turn(place, self.shape) {
                    if arrival <= time {
                        return Next::Run(place);
                    }
                    soonest = arrival;
                }
            }
            skipped += takes;
        }
        if short { Next::Short } else { Next::Wait(soonest) }
    }

    /// Returns the earliest start that an operation's inputs allow; infinite if an input's producer has not started.
    fn arrival(&self, operation: usize) -> f64 {
        match operation % self.shape.per_stream {
            0 => 0.0,
            class => {
                let arrival = self.ends[operation - 1] + self.shape.classes[class].hop;
                if arrival.is_nan() { f64::INFINITY } else { arrival }
            }
        }
    }

    fn start_weight(&mut self, rank: usize, weight: usize, time: f64) {
        self.ranks[rank].weights.pop_front();
        self.start(rank, weight, time);
    }

    fn start(&mut self, rank: usize, operation: usize, time: f64) {
        let op = &self.instance.operations[operation];
        let state = &mut self.ranks[rank];
        if state.row.is_empty() {
            state.start = time;
        } else {
            state.idle += time - state.free;
        }
        state.free = time + op.seconds;
        state.held += op.takes - op.frees;
        state.row.push(operation);
        let (end, class) = (state.free, operation % self.shape.per_stream);
        if (self.shape.stages..self.shape.path).contains(&class) && self.shape.per_stream > self.shape.path {
            state.weights.push_back(operation + self.shape.stages);
        }
        self.ends[operation] = end;
        self.wake(rank, end);
        if class + 1 < self.shape.path {
            let other = self.instance.operations[operation + 1].rank;
            self.wake(other, end + self.shape.classes[class + 1].hop);
        }
    }

    /// Returns the rows if all operations have run.
    fn finish(self) -> Option<Filled> {
        if !self.ranks.iter().all(Rank::is_done) {
            return None;
        }
        let spans = self.ranks.iter().map(|rank| (rank.start, rank.free)).collect();
        Some(Filled { orders: self.ranks.into_iter().map(|rank| rank.row).collect(), spans })
    }
}

/// A time with a total order.
#[derive(Clone, Copy, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Time) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Time) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
