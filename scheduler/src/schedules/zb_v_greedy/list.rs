//! List scheduling of a V: at each moment each free rank runs something that has arrived and fits.
//!
//! An F of chunk 0 runs only if an F of chunk 1 fits beside those that have none yet. So no rank fills up with forwards that
//! cannot come back: once the older ones are through, the oldest micro-batch left can always go on, and every limit that
//! holds one forward of each stage will do.

use super::V;
use crate::block::{PERIOD, Pass, Row};
use Pass::*;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What a rank prefers.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// No W that would hold up an F or I that is on its way.
    pub patient: bool,
    /// F before I.
    pub forward: bool,
    /// An F of chunk 0 also where the room for one of chunk 1 has yet to be freed.
    pub eager: bool,
}

/// A rank may look for work at this time. Times are not negative, so their bits sort as they do.
type Wake = Reverse<(u64, usize)>;

struct Rank {
    row: Row,
    first: f64,
    now: f64,
    held: f64,
    ends: [Vec<f64>; PERIOD],
    weights: VecDeque<Pass>,
}

/// The rows, and the longest time that a rank takes from its first start to its last end.
pub(super) fn list(v: &V, order: Order) -> (f64, Vec<Row>) {
    let rank = || Rank {
        row: Row::with_capacity(PERIOD * v.microbatches),
        first: 0.0,
        now: 0.0,
        held: 0.0,
        ends: Default::default(),
        weights: VecDeque::new(),
    };
    let mut list = List { v, order, ranks: (0..v.ranks).map(|_| rank()).collect(), wakes: BinaryHeap::new() };
    (0..v.ranks).for_each(|rank| list.wake(0.0, rank));
    while let Some(Reverse((bits, rank))) = list.wakes.pop() {
        list.look(rank, f64::from_bits(bits));
    }
    let span = list.ranks.iter().map(|rank| rank.now - rank.first).fold(0.0, f64::max);
    (span, list.ranks.into_iter().map(|rank| rank.row).collect())
}

struct List<'a> {
    v: &'a V<'a>,
    order: Order,
    ranks: Vec<Rank>,
    wakes: BinaryHeap<Wake>,
}

impl List<'_> {
    fn wake(&mut self, time: f64, rank: usize) {
        self.wakes.push(Reverse((time.to_bits(), rank)));
    }

    /// Starts something on a rank, if it is free and there is something.
    fn look(&mut self, rank: usize, time: f64) {
        if self.ranks[rank].now > time {
            return;
        }
        let passes = if self.order.forward { [F1, F0, I0, I1] } else { [I0, I1, F1, F0] };
        let arrivals = passes.map(|pass| self.arrival(rank, pass));
        let arrived = |at: usize| arrivals[at].is_some_and(|arrival| arrival <= time);
        let fits = |at: usize| self.fits(rank, passes[at]);
        if let Some(at) = (0..passes.len()).find(|&at| arrived(at) && fits(at)) {
            return self.start(rank, passes[at], time);
        }
        let Some(&weight) = self.ranks[rank].weights.front() else { return };
        let end = time + self.v.seconds(rank, weight);
        let held_up = (0..passes.len()).any(|at| arrivals[at].is_some_and(|arrival| arrival < end) && fits(at));
        if !(self.order.patient && held_up) {
            self.ranks[rank].weights.pop_front();
            self.start(rank, weight, time);
        }
    }

    /// When a rank's next such pass has all that it needs; `None` if that has not begun, or there is no next one.
    fn arrival(&self, rank: usize, pass: Pass) -> Option<f64> {
        let nth = self.ranks[rank].ends[pass as usize].len();
        let own = pass.before().map_or(Some(0.0), |before| self.ranks[rank].ends[before as usize].get(nth).copied())?;
        match pass.from(rank, self.v.ranks) {
            None => (nth < self.v.microbatches).then_some(own),
            Some((other, hop)) => {
                let end = self.ranks[other].ends[pass as usize].get(nth)?;
                Some(own.max(end + self.v.costs.comm[hop]))
            }
        }
    }

    fn fits(&self, rank: usize, pass: Pass) -> bool {
        let Rank { held, ends, .. } = &self.ranks[rank];
        let (zero, one) = (self.v.memory(rank, F0), self.v.memory(rank, F1));
        match pass {
            F0 if self.order.eager => {
                let without_f1 = (ends[F0 as usize].len() - ends[F1 as usize].len()) as f64;
                self.v.fits(rank, held + zero) && self.v.fits(rank, (without_f1 + 1.0) * zero + one)
            }
            F0 => self.v.fits(rank, held + zero + one),
            _ => self.v.fits(rank, held + self.v.memory(rank, pass)),
        }
    }

    fn start(&mut self, rank: usize, pass: Pass, time: f64) {
        let end = time + self.v.seconds(rank, pass);
        let memory = self.v.memory(rank, pass);
        let here = &mut self.ranks[rank];
        if here.row.is_empty() {
            here.first = time;
        }
        here.now = end;
        here.held += memory;
        here.ends[pass as usize].push(end);
        here.row.push(Some(pass));
        here.weights.extend(pass.weight());
        self.wake(end, rank);
        let next = if pass.ascends() { Some(rank + 1) } else { rank.checked_sub(1) };
        if let Some(next) = next.filter(|&next| next < self.v.ranks)
            && let Some((_, hop)) = pass.from(next, self.v.ranks)
        {
            self.wake(end + self.v.costs.comm[hop], next);
        }
    }
}
