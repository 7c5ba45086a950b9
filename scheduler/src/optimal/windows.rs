//! Precedences and time windows that hold in every order whose value is within a target.
//!
//! Rules, applied until nothing changes (Carlier and Pinson 1989, "An algorithm for solving the job-shop problem"):
//! - a precedence moves the earliest start of the successor and the latest end of the predecessor;
//! - all predecessors of an operation on its rank need their time there, sequentially, from their earliest starts on; the
//!   same backwards from the latest ends;
//! - of two operations of a rank, a goes first if b and then a do not fit between b's earliest start and a's latest end;
//! - an F fits the memory limit only after the I and W without which its memory is not free, even if all others that can
//!   precede it do.
//!
//! An overlapped pair is taken as pieces of its operations in sequence (see [`Pieces`]): starts, ends and precedences here
//! are those of pieces.

use super::pieces::Pieces;
use super::shop::{Origin, Shop};
use crate::problem::is_over;
use std::time::Instant;

/// Error of a target that no order meets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Empty;

/// The windows for a target.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    /// Earliest start of each operation.
    pub(super) earliest: Vec<i64>,
    /// Latest end of each operation.
    pub(super) latest: Vec<i64>,
    /// Direct and indirect predecessors of each operation.
    pub(super) before: Vec<Bits>,
    /// The pieces, with the pairs that are still possible.
    pub(super) pieces: Pieces,
}

/// A set of operations.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    fn new(size: usize) -> Bits {
        Bits(vec![0; size.div_ceil(64)])
    }

    /// Returns whether an operation is in the set.
    pub(super) fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn add(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    fn add_all(&mut self, other: &Bits) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }
}

impl Windows {
    /// Computes the windows of all orders whose value is at most `target`. After the deadline, windows are wider but valid.
    pub(super) fn within(shop: &Shop, target: i64, deadline: Option<Instant>) -> Result<Windows, Empty> {
        let mut search = Search::new(shop, target);
        loop {
            search.close()?;
            search.forward();
            search.backward()?;
            if !(search.by_memory()? | search.by_time()? | search.by_pairs()) || is_over(deadline) {
                break;
            }
        }
        let Search { earliest, latest, before, pieces, .. } = search;
        Ok(Windows { earliest, latest, before, pieces })
    }

    /// Returns the predecessors of an operation on its rank that have no operation of the rank in between.
    pub(super) fn direct<'a>(&'a self, index: usize, rank: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
        let before = rank.iter().copied().filter(move |&other| self.before[index].has(other));
        before.filter(move |&other| !rank.iter().any(|&x| self.before[x].has(other) && self.before[index].has(x)))
    }

    /// Returns whether the order of two operations is known.
    pub(super) fn ordered(&self, a: usize, b: usize) -> bool {
        self.before[b].has(a) || self.before[a].has(b)
    }
}

struct Search<'a> {
    shop: &'a Shop,
    target: i64,
    /// Predecessors and lags of each operation.
    after: Vec<Vec<(usize, i64)>>,
    /// The operations in topological order.
    sorted: Vec<usize>,
    earliest: Vec<i64>,
    latest: Vec<i64>,
    before: Vec<Bits>,
    pieces: Pieces,
}

impl<'a> Search<'a> {
    fn new(shop: &'a Shop, target: i64) -> Search<'a> {
        let size = shop.len();
        Search {
            shop,
            target,
            after: shop.after.clone(),
            sorted: Vec::new(),
            earliest: vec![0; size],
            latest: vec![i64::MAX; size],
            before: vec![Bits::new(size); size],
            pieces: Pieces::of(shop),
        }
    }

    /// Sorts the operations, and computes the transitive closure of the precedences.
    fn close(&mut self) -> Result<(), Empty> {
        let size = self.shop.len();
        let mut followers = vec![Vec::new(); size];
        let mut open: Vec<usize> = self.after.iter().map(Vec::len).collect();
        for (index, after) in self.after.iter().enumerate() {
            after.iter().for_each(|&(from, _)| followers[from].push(index));
        }
        self.sorted = (0..size).filter(|&index| open[index] == 0).collect();
        let mut done = 0;
        while let Some(&index) = self.sorted.get(done) {
            for &next in &followers[index] {
                open[next] -= 1;
                if open[next] == 0 {
                    self.sorted.push(next);
                }
            }
            done += 1;
        }
        if done < size {
            return Err(Empty);
        }
        for &index in &self.sorted {
            let mut before = std::mem::replace(&mut self.before[index], Bits(Vec::new()));
            for &(from, _) in &self.after[index] {
                before.add(from);
                before.add_all(&self.before[from]);
            }
            self.before[index] = before;
        }
        Ok(())
    }

    fn forward(&mut self) {
        for at in 0..self.sorted.len() {
            let index = self.sorted[at];
            let ways = self.after[index].iter().map(|&(from, lag)| self.earliest[from] + self.pieces.long[from] + lag);
            let earliest = ways.max().unwrap_or(0).max(self.earliest[index]);
            let rank = self.shop.of_rank[self.shop.rank[index]].iter().copied();
            let mut before: Vec<usize> = rank.filter(|&other| self.before[index].has(other)).collect();
            before.sort_unstable_by_key(|&other| self.earliest[other]);
            let end = before.iter().fold(0, |end, &other| self.earliest[other].max(end) + self.pieces.long[other]);
            self.earliest[index] = earliest.max(end);
        }
    }

    fn backward(&mut self) -> Result<(), Empty> {
        for rank in 0..self.shop.of_rank.len() {
            let deadline = self.deadline(rank);
            for &index in &self.shop.of_rank[rank] {
                self.latest[index] = self.latest[index].min(deadline);
            }
        }
        for at in (0..self.sorted.len()).rev() {
            let index = self.sorted[at];
            let rank = self.shop.of_rank[self.shop.rank[index]].iter().copied();
            let mut behind: Vec<usize> = rank.filter(|&other| self.before[other].has(index)).collect();
            behind.sort_unstable_by_key(|&other| -self.latest[other]);
            let whole = i64::MAX;
            let start =
                behind.iter().fold(whole, |start, &other| start.min(self.latest[other]) - self.pieces.long[other]);
            self.latest[index] = self.latest[index].min(start);
            if self.earliest[index] + self.pieces.long[index] > self.latest[index] {
                return Err(Empty);
            }
            for &(from, lag) in &self.after[index] {
                self.latest[from] = self.latest[from].min(self.latest_start(index) - lag);
            }
        }
        Ok(())
    }

    /// Returns the latest end on a rank. The rank starts no later than any of its first operations, and no rank starts later
    /// than the target. The first micro-batch passes all ranks and returns to the one that starts at 0.
    fn deadline(&self, rank: usize) -> i64 {
        let origin = match &self.shop.origin[rank] {
            Origin::At(moment) => *moment,
            Origin::FirstOf(firsts) => {
                let starts = firsts.iter().map(|&index| self.latest[index].saturating_sub(self.pieces.long[index]));
                starts.min().unwrap_or(0).min(self.target)
            }
        };
        self.target.saturating_add(origin)
    }

    /// Adds the precedences without which two operations of a rank do not fit in time.
    fn by_time(&mut self) -> Result<bool, Empty> {
        let mut found = Vec::new();
        let shop = self.shop;
        for rank in &shop.of_rank {
            for (nth, &a) in rank.iter().enumerate() {
                for &b in &rank[nth + 1..] {
                    if self.before[a].has(b) || self.before[b].has(a) {
                        continue;
                    }
                    let both = self.pieces.long[a] + self.pieces.long[b];
                    let b_first = self.earliest[b] + both <= self.latest[a];
                    let a_first = self.earliest[a] + both <= self.latest[b];
                    match (a_first, b_first) {
                        (false, false) => return Err(Empty),
                        (true, false) => found.push((a, b)),
                        (false, true) => found.push((b, a)),
                        (true, true) => {}
                    }
                }
            }
        }
        for &(first, second) in &found {
            self.after[second].push((first, 0));
        }
        Ok(!found.is_empty())
    }

    /// Adds the precedences without which an F does not fit in memory.
    fn by_memory(&mut self) -> Result<bool, Empty> {
        let mut found = Vec::new();
        for (rank, operations) in self.shop.of_rank.iter().enumerate() {
            let Some(limit) = self.shop.limit[rank] else { continue };
            for &index in operations.iter().filter(|&&index| self.shop.takes[index] > 0) {
                self.room_for(index, operations, limit, &mut found)?;
            }
        }
        for &(first, second) in &found {
            self.after[second].push((first, 0));
        }
        Ok(!found.is_empty())
    }

    /// Adds the predecessors that an F needs for its memory to be free. Only memory that is surely taken before the F counts:
    /// another F, with its I and W, at best restores the memory that it found.
    fn room_for(
        &self,
        index: usize,
        operations: &[usize],
        limit: i64,
        found: &mut Vec<(usize, usize)>,
    ) -> Result<(), Empty> {
        let (mut held, mut may_free) = (self.shop.takes[index], Vec::new());
        for &other in operations.iter().filter(|&&other| other != index) {
            let sure = self.before[index].has(other);
            held += if sure { self.shop.takes[other] - self.shop.frees[other] } else { 0 };
            let may = !sure && !self.before[other].has(index) && self.before[index].has(self.shop.forward[other]);
            if may && self.shop.frees[other] > 0 {
                may_free.push(other);
            }
        }
        let most: i64 = may_free.iter().map(|&other| self.shop.frees[other]).sum();
        if held - most > limit {
            return Err(Empty);
        }
        for &needed in &may_free {
            let lost: i64 = (may_free.iter())
                .filter(|&&other| other == needed || self.before[other].has(needed))
                .map(|&other| self.shop.frees[other])
                .sum();
            if held - most + lost > limit {
                found.push((needed, index));
            }
        }
        Ok(())
    }

    /// Drops the impossible pairs. A W that cannot be in a pair then follows the earlier W of its stage.
    fn by_pairs(&mut self) -> bool {
        let shop = self.shop;
        if shop.pair.is_none() {
            return false;
        }
        let results = self.results();
        let mut pieces = self.pieces.clone();
        let dropped = pieces.drop(shop, |forward, backward| !self.can_overlap(forward, backward, &results));
        let alone = pieces.newly_alone(shop);
        self.pieces = pieces;
        for &weights in &alone {
            self.after[weights].extend(shop.behind[weights].iter().map(|&before| (before, 0)));
        }
        dropped || !alone.is_empty()
    }

    /// Returns the time by which the result of each operation must be available.
    fn results(&self) -> Vec<i64> {
        let shop = self.shop;
        let mut results: Vec<i64> = shop.rank.iter().map(|&rank| self.deadline(rank)).collect();
        for (index, after) in shop.after.iter().enumerate() {
            for &(from, lag) in after.iter().filter(|&&(from, _)| shop.weights[from] != Some(index)) {
                results[from] = results[from].min(self.latest_start(index) - lag);
            }
        }
        results
    }

    /// Returns whether the known windows and precedences permit an F and a B (or I) to run as a pair.
    fn can_overlap(&self, forward: usize, backward: usize, results: &[i64]) -> bool {
        let shop = self.shop;
        let Some(pair) = shop.pair else { return false };
        let offset = self.pieces.offset[backward];
        let arrivals =
            shop.after[backward].iter().map(|&(from, lag)| self.earliest[from] + self.pieces.long[from] + lag);
        let start = arrivals.fold(self.earliest[forward].max(self.earliest[backward] - offset), i64::max);
        let in_time = start <= self.latest_start(forward)
            && start + offset <= self.latest_start(backward)
            && start + pair <= results[forward].min(results[backward]);
        let mut rank = shop.of_rank[shop.rank[forward]].iter();
        in_time
            && !self.before[forward].has(backward)
            && !rank.any(|&index| self.before[index].has(forward) && self.before[backward].has(index))
    }

    fn latest_start(&self, index: usize) -> i64 {
        self.latest[index] - self.pieces.long[index]
    }
}

#[cfg(test)]
mod tests {
    use super::super::Instance;
    use super::*;
    use crate::costs::StageCosts;
    use crate::placement::{Pipeline, Placement};
    use crate::problem::{Backward, Objective, Problem};

    fn shop(microbatches: u32, limit: f64) -> Shop {
        let costs = StageCosts { limit: Some(vec![limit; 2]), ..StageCosts::uniform(2, 2.0, 2.0, 2.0, 0.0) };
        let pipeline = Pipeline::new(Placement::Chain, 2, microbatches);
        let (objective, backward, deadline) = (Objective::Makespan, Backward::Split, None);
        let problem = Problem { costs: &costs, pipeline: &pipeline, objective, backward, deadline };
        Shop::new(&problem, &Instance::new(&problem), 100.0)
    }

    /// A coarse unit rounds durations down, so that fewer orders are excluded.
    #[test]
    fn a_coarse_shop_is_small() {
        let costs = StageCosts { f: vec![1e7, 1.0], ..StageCosts::uniform(2, 1.0, 2.0, 3.0, 0.0) };
        let pipeline = Pipeline::new(Placement::Chain, 2, 2);
        let (objective, backward, deadline) = (Objective::Makespan, Backward::Split, None);
        let problem = Problem { costs: &costs, pipeline: &pipeline, objective, backward, deadline };
        let instance = Instance::new(&problem);
        let (fine, coarse) = (Shop::new(&problem, &instance, 2e7), Shop::in_units(&problem, &instance, 2e7, 1000.0));
        assert_eq!((fine.unit, fine.exact, fine.long[0]), (1.0, true, 10_000_000));
        assert_eq!((coarse.unit, coarse.exact, coarse.long[0], coarse.long[1]), (2e4, false, 500, 0));
        assert_eq!((fine.units_within(10.5), coarse.units_within(3.9e4)), (11, 1));
    }

    #[test]
    fn one_micro_batch_goes_there_and_back() {
        let shop = shop(1, 1.0);
        assert_eq!((shop.unit, shop.exact), (2.0, true));
        assert_eq!(Windows::within(&shop, 4, None).unwrap_err(), Empty);
        let windows = Windows::within(&shop, 5, None).unwrap();
        assert_eq!(windows.earliest, [0, 1, 2, 3, 3, 4]);
        assert_eq!(windows.latest, [1, 2, 3, 4, 5, 5]);
    }

    /// F0 I0 W0 run on both stages before F1 of stage 0: two round trips. The second W of stage 1 overlaps the last of stage 0.
    #[test]
    fn without_room_for_two_the_second_waits() {
        assert_eq!(Windows::within(&shop(2, 1.0), 9, None).unwrap_err(), Empty);
        let windows = Windows::within(&shop(2, 1.0), 10, None).unwrap();
        assert!(windows.before[6].has(5), "the second F of stage 0 goes behind the first W");
        assert!(!windows.before[6].has(4), "the W of stage 1 need not");
        assert!(!Windows::within(&shop(2, 2.0), 10, None).unwrap().ordered(5, 6));
        assert_eq!(Windows::within(&shop(2, 0.5), 1000, None).unwrap_err(), Empty);
    }
}
