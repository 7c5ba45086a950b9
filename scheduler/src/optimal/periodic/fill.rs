//! Whole rows from the order of F and I on each rank. Every W goes where the rank would idle, or where memory requires it.

use super::pattern::Pattern;
use super::shape::Shape;
use crate::optimal::Instance;
use crate::problem::Objective;
use ir::schedule::Kind;
use std::collections::VecDeque;

/// Rules for running a W before an operation that has not arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps<'a> {
    /// Fraction of a W's length by which the W may delay the operation, per rank.
    pub(super) patience: &'a [f64],
    /// Total idle seconds per rank, above which a W runs first, whatever its length.
    pub(super) spare: &'a [f64],
}

impl Gaps<'_> {
    /// Returns whether a W of `seconds` runs first on a rank that would otherwise wait `gap` seconds and has idled `idle`
    /// seconds.
    pub(super) fn filled(&self, rank: usize, seconds: f64, gap: f64, idle: f64) -> bool {
        let fits = seconds <= gap + (self.patience[rank] + 1e-9) * seconds;
        fits || (gap > 0.0 && idle + gap > self.spare[rank])
    }
}

/// Rows with their times.
#[derive(Clone, Debug)]
pub(super) struct Filled {
    /// The operations of each rank in order, by index in the instance.
    pub(super) orders: Vec<Vec<usize>>,
    /// First start and last end of each rank.
    pub(super) spans: Vec<(f64, f64)>,
}

impl Filled {
    /// Returns the value of the objective.
    pub(super) fn value(&self, objective: Objective) -> f64 {
        let values = self.spans.iter().map(|&(start, end)| match objective {
            Objective::Makespan => end,
            Objective::Span => end - start,
        });
        values.fold(0.0, f64::max)
    }
}

/// Runs the path operations of each rank in the order given, with W in between.
///
/// A W runs before an operation if `gaps` permits it, or if memory is short for an F. Returns `None` if memory stays short, or
/// if the ranks deadlock.
pub(super) fn fill(instance: &Instance, shape: &Shape, orders: &[Vec<usize>], gaps: Gaps) -> Option<Filled> {
    let mut run = Run::new(instance, shape, orders, gaps);
    let mut ready: Vec<usize> = (0..shape.ranks).rev().collect();
    while let Some(rank) = ready.pop() {
        run.advance(rank, &mut ready)?;
    }
    run.finish()
}

struct Run<'a> {
    instance: &'a Instance,
    shape: &'a Shape,
    orders: &'a [Vec<usize>],
    gaps: Gaps<'a>,
    /// Ends of the operations that have run; NaN for the rest.
    ends: Vec<f64>,
    ranks: Vec<Rank>,
}

struct Rank {
    row: Vec<usize>,
    next: usize,
    start: f64,
    free: f64,
    idle: f64,
    held: f64,
    /// W whose I has run.
    weights: VecDeque<usize>,
}

impl Rank {
    fn new(order: &[usize]) -> Rank {
        let row = Vec::with_capacity(order.len() * 3 / 2);
        Rank { row, next: 0, start: 0.0, free: 0.0, idle: 0.0, held: 0.0, weights: VecDeque::new() }
    }
}

impl<'a> Run<'a> {
    fn new(instance: &'a Instance, shape: &'a Shape, orders: &'a [Vec<usize>], gaps: Gaps<'a>) -> Run<'a> {
        let ends = vec![f64::NAN; instance.operations.len()];
        Run { instance, shape, orders, gaps, ends, ranks: orders.iter().map(|order| Rank::new(order)).collect() }
    }

    /// Runs a rank until an input of its next operation is missing. Returns `None` if memory is short.
    fn advance(&mut self, rank: usize, ready: &mut Vec<usize>) -> Option<()> {
        while let Some(&operation) = self.orders[rank].get(self.ranks[rank].next) {
            let class = operation % self.shape.per_stream;
            let arrival = match class {
                0 => 0.0,
                _ => self.ends[operation - 1] + self.shape.classes[class].hop,
            };
            if arrival.is_nan() {
                return Some(());
            }
            self.weights_before(rank, operation, arrival)?;
            self.run(rank, operation, arrival);
            self.ranks[rank].next += 1;
            if class >= self.shape.stages && self.shape.per_stream > self.shape.path {
                self.ranks[rank].weights.push_back(operation + self.shape.stages);
            }
            if class + 1 < self.shape.path {
                let other = self.instance.operations[operation + 1].rank;
                if other != rank && self.orders[other].get(self.ranks[other].next) == Some(&(operation + 1)) {
                    ready.push(other);
                }
            }
        }
        Some(())
    }

    fn weights_before(&mut self, rank: usize, operation: usize, arrival: f64) -> Option<()> {
        let takes = self.instance.operations[operation].takes;
        let limit = self.instance.limit[rank] * (1.0 + 1e-9);
        loop {
            let state = &self.ranks[rank];
            let short = state.held + takes > limit;
            let Some(&weight) = state.weights.front() else { return (!short).then_some(()) };
            let seconds = self.instance.operations[weight].seconds;
            let gap = if state.row.is_empty() { 0.0 } else { (arrival - state.free).max(0.0) };
            if !short && !self.gaps.filled(rank, seconds, gap, state.idle) {
                return Some(());
            }
            self.ranks[rank].weights.pop_front();
            self.run(rank, weight, 0.0);
        }
    }

    fn run(&mut self, rank: usize, operation: usize, arrival: f64) {
        let op = &self.instance.operations[operation];
        let state = &mut self.ranks[rank];
        let start = state.free.max(arrival);
        if state.row.is_empty() {
            state.start = start;
        } else {
            state.idle += start - state.free;
        }
        state.free = start + op.seconds;
        state.held += op.takes - op.frees;
        state.row.push(operation);
        self.ends[operation] = state.free;
    }

    /// Runs the W that are left. Returns `None` if a rank still waits.
    fn finish(mut self) -> Option<Filled> {
        for rank in 0..self.shape.ranks {
            if self.ranks[rank].next < self.orders[rank].len() {
                return None;
            }
            while let Some(weight) = self.ranks[rank].weights.pop_front() {
                self.run(rank, weight, 0.0);
            }
        }
        let spans = self.ranks.iter().map(|rank| (rank.start, rank.free)).collect();
        Some(Filled { orders: self.ranks.into_iter().map(|rank| rank.row).collect(), spans })
    }
}

/// Orders F and I (or B) of each rank by the times of a pattern in which F of stage s runs `pull[s]` periods earlier.
pub(super) fn unroll(instance: &Instance, shape: &Shape, pattern: &Pattern, pull: &[u32]) -> Vec<Vec<usize>> {
    let mut timed: Vec<Vec<(f64, usize)>> = vec![Vec::new(); shape.ranks];
    for microbatch in 0..instance.operations.len() / shape.per_stream {
        let (stream, nth) = shape.place(microbatch);
        for place in 0..shape.path {
            let stated = &shape.classes[stream * shape.per_stream + place];
            let operation = microbatch * shape.per_stream + place;
            let earlier = if stated.kind == Kind::F { f64::from(pull[stated.stage]) } else { 0.0 };
            let start = pattern.start[stream * shape.per_stream + place] + (nth as f64 - earlier) * pattern.period;
            timed[instance.operations[operation].rank].push((start, operation));
        }
    }
    (timed.into_iter())
        .map(|mut of_rank| {
            of_rank.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            of_rank.into_iter().map(|(_, operation)| operation).collect()
        })
        .collect()
}
