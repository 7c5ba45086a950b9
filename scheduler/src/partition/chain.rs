//! Fastest partition into a chain of stages, one for each rank.
//!
//! In a fixed order a step takes at least as long as each path through it. Let rank r have the block instances `from..to`, let
//! k be its forwards before its first backward, and let P and D be the seconds that a micro-batch needs forward and back
//! before and after it. With f and b seconds of its forward and backward, every partition obeys
//!
//! ```text
//! T >= P +      m (f + b)              through the rank
//! T >= P +  D + (m-k+1) f + m b        down and back once, at the start
//! T >= P +  D + m f + (m-k+1) b        the same at the end
//! T >= P + 2D + (m-k+1) (f + b)        both, if m > k
//! ```
//!
//! All four fall, or stay, if the stage loses an instance at either end. So the longest stages that keep T, from one end of the
//! chain to the other, decide whether any partition keeps it, and bisection gives the least such T. If I and W are apart, I
//! takes the place of b, and a rank's work with W begins when the first forward arrives.

use crate::placement::Pipeline;
use std::iter::Sum;
use std::ops::{Add, Sub};

/// Seconds of the sections of block instances.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RunSeconds {
    /// Seconds of the forward.
    pub f: f64,
    /// Seconds of the input gradient.
    pub i: f64,
    /// Seconds of the weight gradient.
    pub w: f64,
}

impl RunSeconds {
    /// Seconds of all sections.
    pub fn total(self) -> f64 {
        self.f + self.i + self.w
    }
}

impl Add for RunSeconds {
    type Output = RunSeconds;

    fn add(self, other: RunSeconds) -> RunSeconds {
        RunSeconds { f: self.f + other.f, i: self.i + other.i, w: self.w + other.w }
    }
}

impl<'a> Sum<&'a RunSeconds> for RunSeconds {
    fn sum<I: Iterator<Item = &'a RunSeconds>>(runs: I) -> RunSeconds {
        runs.fold(RunSeconds::default(), |sum, &run| sum + run)
    }
}

impl Sub for RunSeconds {
    type Output = RunSeconds;

    fn sub(self, other: RunSeconds) -> RunSeconds {
        RunSeconds { f: self.f - other.f, i: self.i - other.i, w: self.w - other.w }
    }
}

/// Relative precision of the bisection.
const PRECISION: f64 = 1e-3;

/// A chain of ranks whose stages are open.
pub struct Chain {
    /// Seconds of the block instances before each.
    before: Vec<RunSeconds>,
    /// Forwards of each rank before its first backward.
    ahead: Vec<u32>,
    microbatches: u32,
    /// True if I and W are apart.
    splits: bool,
    /// Seconds of a hop.
    hop: f64,
}

impl Chain {
    /// A chain of the block instances `runs`. `ahead` gives an upper bound on the forwards of a rank before its first backward.
    pub fn new(runs: &[RunSeconds], pipeline: &Pipeline, ahead: impl Fn(u32) -> u32, splits: bool, hop: f64) -> Chain {
        let microbatches = pipeline.microbatches;
        let ahead = (0..pipeline.ranks).map(|rank| ahead(rank).clamp(1, microbatches.max(1))).collect();
        Chain { before: sums(runs), ahead, microbatches, splits, hop }
    }

    /// Lower bound on the seconds of a step over all partitions, and a partition whose paths take hardly longer; it has its
    /// shortest stages first, where most activations are saved. `None` if there are fewer instances than ranks.
    pub fn fastest(&self) -> Option<(f64, Vec<usize>)> {
        let (ranks, runs) = (self.ahead.len(), self.before.len() - 1);
        if ranks > runs {
            return None;
        }
        let even: Vec<usize> = (0..ranks).map(|rank| rank * runs / ranks).collect();
        let mut best = (self.longest_path(&even), even);
        let mut low = f64::from(self.microbatches) * self.before[runs].total() / ranks as f64;
        while best.0 - low > PRECISION * best.0 {
            let middle = (low + best.0) / 2.0;
            match self.longest_stages_last(middle) {
                Some(starts) => best = (middle, starts),
                None => low = middle,
            }
        }
        Some((low.min(best.0), best.1))
    }

    /// Partition within some seconds whose first stages are as long as possible.
    pub fn longest_stages_first(&self, seconds: f64) -> Option<Vec<usize>> {
        let (ranks, runs) = (self.ahead.len(), self.before.len() - 1);
        let mut starts = Vec::with_capacity(ranks);
        let mut from = 0;
        for rank in 0..ranks {
            starts.push(from);
            let most = (runs + 1 + rank).checked_sub(ranks)?;
            from = last_of(from + 1, most, |to| self.path_of(rank, from, to) <= seconds)?;
        }
        (from == runs).then_some(starts)
    }

    /// Partition within some seconds whose last stages are as long as possible.
    fn longest_stages_last(&self, seconds: f64) -> Option<Vec<usize>> {
        let (ranks, runs) = (self.ahead.len(), self.before.len() - 1);
        let mut starts = vec![0; ranks];
        let mut to = runs;
        for rank in (0..ranks).rev() {
            to -= last_of(1, to.checked_sub(rank)?, |length| self.path_of(rank, to - length, to) <= seconds)?;
            starts[rank] = to;
        }
        (to == 0).then_some(starts)
    }

    /// Seconds of the longest path through any rank of a partition.
    pub fn longest_path(&self, starts: &[usize]) -> f64 {
        let runs = self.before.len() - 1;
        let ends = starts.iter().skip(1).copied().chain([runs]);
        let paths = starts.iter().zip(ends).enumerate().map(|(rank, (&from, to))| self.path_of(rank, from, to));
        paths.fold(0.0, f64::max)
    }

    /// Seconds of block instances backward, up to the message to the rank before.
    fn backward(&self, of: RunSeconds) -> f64 {
        if self.splits { of.i } else { of.i + of.w }
    }

    /// Seconds of a micro-batch forward and back through block instances, with hops in between.
    fn round_trip(&self, of: RunSeconds, hops: usize) -> f64 {
        of.f + self.backward(of) + 2.0 * self.hop * hops as f64
    }

    /// The longest path through a rank with the block instances `from..to`.
    fn path_of(&self, rank: usize, from: usize, to: usize) -> f64 {
        let m = f64::from(self.microbatches);
        let rest = f64::from(self.microbatches - self.ahead[rank] + 1);

        let (before, all) = (self.before[from], self.before[self.before.len() - 1]);
        let (own, after) = (self.before[to] - before, all - self.before[to]);
        let (above, below) = (self.round_trip(before, rank), self.round_trip(after, self.ahead.len() - 1 - rank));
        let (f, b) = (own.f, self.backward(own));
        let mut longest = above + m * (f + b);
        if self.splits {
            longest = longest.max(before.f + self.hop * rank as f64 + m * own.total());
        }
        longest = longest.max(above + below + rest * f + m * b).max(above + below + m * f + rest * b);
        if rest > 1.0 { longest.max(above + 2.0 * below + rest * (f + b)) } else { longest }
    }
}

/// The seconds of all block instances before each, and of all.
pub(super) fn sums(runs: &[RunSeconds]) -> Vec<RunSeconds> {
    let mut before = Vec::with_capacity(runs.len() + 1);
    before.push(RunSeconds::default());
    for (at, run) in runs.iter().enumerate() {
        before.push(before[at] + *run);
    }
    before
}

/// The last number of `least..=most` that keeps a condition which no larger number keeps once one does not; `None` if the
/// least does not.
fn last_of(least: usize, most: usize, keeps: impl Fn(usize) -> bool) -> Option<usize> {
    if least > most || !keeps(least) {
        return None;
    }
    let (mut low, mut high) = (least, most);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if keeps(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests;
