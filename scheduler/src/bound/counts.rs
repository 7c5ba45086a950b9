//! Lower bound of a chain under memory limits, from the numbers of F, I and W that each rank has run.
//!
//! The micro-batches of a chain are alike: a rank is described by the number n of its F, e of its I and g of its W that have ended.
//! `T(n, e, g)` is a lower bound on the time at which all of these have ended on a rank. A step of the rank adds one of them:
//!
//! - *F*: the memory of `n + 1 - e` micro-batches, and what the W of `e - g` still hold, must be within the limit. The (n+1)-th F
//!   starts after the (n+1)-th F of the rank before it has ended there.
//! - *I*: the (e+1)-th I starts after the (e+1)-th I of the next rank has ended there. On the last rank it needs e + 1 F.
//! - *W*: the (g+1)-th W follows g + 1 I.
//!
//! Each need is one of numbers, whichever micro-batches they are, so that the bound holds for all orders. Numbers are added for
//! all ranks alike, from n = 1 on: the F down the chain, then the I up. A rank with too many states has one time for each number
//! of F and of I, as if its memory had no limit.

use crate::costs::StageCosts;
use crate::placement::Placement;
use crate::problem::{Backward, Problem};

/// Limit on the states of all ranks and micro-batches, a fraction of a second of work.
const MOST_STATES: usize = 8_000_000;

/// Computes the bound on the makespan; `None` without limits, for other placements, and for pairs with a time of their own.
pub(super) fn chain(problem: &Problem) -> Option<f64> {
    let (costs, pipeline) = (problem.costs, problem.pipeline);
    let limits = costs.limit.as_ref()?;
    if pipeline.placement != Placement::Chain || (costs.fb.is_some() && problem.backward != Backward::Split) {
        return None;
    }
    let fused = problem.backward == Backward::Fused;
    let units = (pipeline.microbatches * pipeline.slices) as usize;
    let mut ranks: Vec<Rank> =
        (0..pipeline.ranks as usize).map(|rank| Rank::new(costs, rank, limits[rank], fused, units)).collect();
    give_states(&mut ranks, units);
    for n in 1..=units {
        let mut arrival = 0.0;
        for rank in &mut ranks {
            arrival = rank.forward(arrival) + rank.f + rank.hop;
        }
        let mut returned = None;
        for rank in ranks.iter_mut().rev() {
            let from = returned.map(|time| time + rank.hop);
            returned = Some(rank.backward(n, from));
        }
    }
    Some(ranks.iter().map(Rank::end).fold(0.0, f64::max))
}

/// Gives states to the ranks with the fewest, as long as all are within [`MOST_STATES`].
fn give_states(ranks: &mut [Rank], units: usize) {
    let mut by_states: Vec<&mut Rank> = ranks.iter_mut().collect();
    by_states.sort_by_key(|rank| rank.states());
    let mut left = MOST_STATES / units.max(1);
    for rank in by_states {
        let Some(rest) = left.checked_sub(rank.states()) else { return };
        left = rest;
        rank.times = vec![f64::INFINITY; rank.states()];
        rank.times[0] = 0.0;
    }
}

/// A rank of the chain, after n of its F.
struct Rank {
    f: f64,
    i: f64,
    w: f64,
    /// Seconds from this rank to the next one, and back.
    hop: f64,
    /// Memory of a micro-batch before its I has ended, and between its I and its W.
    whole: f64,
    left: f64,
    limit: f64,
    /// The most micro-batches without their I, and the most without their W alone; both at the limit.
    most: usize,
    most_left: usize,
    /// `T` by the micro-batches without their I, and within by those without their W alone. It is infinite where it cannot be, and
    /// empty if the limit is left out.
    times: Vec<f64>,
    /// The number of F that have ended, the end of the first and of the last one.
    count: usize,
    first: f64,
    last: f64,
    /// By number of I: the earliest start of the last one of them that the next rank allows, and its end.
    starts: Vec<f64>,
    ends: Vec<f64>,
}

impl Rank {
    fn new(costs: &StageCosts, rank: usize, limit: f64, fused: bool, units: usize) -> Rank {
        let (i, w) = if fused { (costs.i[rank] + costs.w[rank], 0.0) } else { (costs.i[rank], costs.w[rank]) };
        let whole = costs.mem_f[rank];
        let left = if fused { 0.0 } else { costs.mem_w[rank].min(whole - costs.mem_i[rank]).max(0.0) };
        let most = fitting(limit, whole, units).max(1);
        let most_left = if left > 0.0 { fitting(limit, left, units).max(1) } else { 0 };
        let hop = costs.comm.get(rank).copied().unwrap_or(0.0);
        Rank {
            f: costs.f[rank],
            i,
            w,
            hop,
            whole,
            left,
            limit,
            most,
            most_left,
            times: Vec::new(),
            count: 0,
            first: 0.0,
            last: 0.0,
            starts: vec![0.0],
            ends: vec![0.0],
        }
    }

    /// The number of its states.
    fn states(&self) -> usize {
        (self.most + 1).saturating_mul(self.most_left + 1)
    }

    /// The place of a state.
    fn at(&self, open: usize, left: usize) -> usize {
        open * (self.most_left + 1) + left
    }

    /// Adds an F that arrives at a time, and returns the earliest start of the F of this number.
    fn forward(&mut self, arrival: f64) -> f64 {
        let start = if self.times.is_empty() { arrival.max(self.last) } else { self.forward_states(arrival) };
        if self.count == 0 {
            self.first = start;
        }
        (self.count, self.last) = (self.count + 1, start + self.f);
        start
    }

    fn forward_states(&mut self, arrival: f64) -> f64 {
        let mut start = f64::INFINITY;
        let most = self.limit * (1.0 + 1e-9) + 1e-9;
        for open in (1..=self.most).rev() {
            for left in 0..=self.most_left {
                let held = open as f64 * self.whole + left as f64 * self.left;
                let (before, now) = (self.at(open - 1, left), self.at(open, left));
                let fits = held <= most || open == 1 && left == 0;
                let begin = if fits { self.times[before].max(arrival) } else { f64::INFINITY };
                start = start.min(begin);
                self.times[now] = begin + self.f;
            }
        }
        // The new micro-batch is without its I.
        self.times[..=self.most_left].fill(f64::INFINITY);
        start
    }

    /// Adds the I and W that n micro-batches allow; the n-th I may start at a time that the next rank gives, or after n F. Returns
    /// the earliest end of the n-th I.
    fn backward(&mut self, n: usize, from: Option<f64>) -> f64 {
        let start = from.unwrap_or(self.last);
        self.starts.push(start);
        let end = if self.times.is_empty() {
            (start.max(self.ends[n - 1]) + self.i).max(self.first + n as f64 * (self.f + self.i))
        } else {
            self.backward_states(n)
        };
        self.ends.push(end);
        end
    }

    fn backward_states(&mut self, n: usize) -> f64 {
        for open in (0..=self.most.min(n)).rev() {
            let ended = n - open;
            for left in (1..=self.most_left.min(ended)).rev() {
                // All W have ended but for those of these micro-batches, and of those without their I.
                let (from, to) = (self.at(open, left), self.at(open, left - 1));
                let weights = self.starts[ended - left + 1] + self.i + self.w;
                self.times[to] = self.times[to].min((self.times[from] + self.w).max(weights));
            }
            if open == 0 {
                break;
            }
            for left in 0..=self.most_left {
                let more = if self.most_left == 0 { 0 } else { left + 1 };
                if more > self.most_left {
                    break;
                }
                let (from, to) = (self.at(open, left), self.at(open - 1, more));
                let end = self.times[from].max(self.starts[ended + 1]) + self.i;
                self.times[to] = self.times[to].min(end);
            }
        }
        (0..=self.most_left).map(|left| self.times[self.at(0, left)]).fold(f64::INFINITY, f64::min)
    }

    /// The end of all work.
    fn end(&self) -> f64 {
        let work = self.first + self.count as f64 * (self.f + self.i + self.w);
        let last = (self.ends[self.ends.len() - 1] + self.w).max(work);
        if self.times.is_empty() { last } else { last.max(self.times[0]) }
    }
}

/// The number of pieces of memory that fit, up to rounding, and at most a number.
fn fitting(limit: f64, piece: f64, most: usize) -> usize {
    if piece > 0.0 { (((limit / piece) * (1.0 + 1e-9) + 1e-9).floor().max(0.0) as usize).min(most) } else { most }
}
