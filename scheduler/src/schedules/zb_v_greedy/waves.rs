//! ZB-V in waves: forwards run until every rank has its share in flight, then each round runs an I and an F on each rank.

use super::V;
use crate::block::{BlockRow, PERIOD, Pass};
use Pass::*;
use std::collections::VecDeque;

/// Gaps that a W longer than the gap fills.
#[derive(Clone, Copy)]
pub(super) struct Fill {
    /// Before an I of chunk 1.
    pub before_i: bool,
    /// Before an F.
    pub before_f: bool,
}

/// Rows of a variant.
pub(super) struct Waves {
    pub span: f64,
    pub rows: Vec<BlockRow>,
    lag: Vec<f64>,
}

/// Returns the rows of the first variant of the least span, or `None` if the waves do not fit.
pub(super) fn waves(v: &V) -> Option<Waves> {
    let mut start = Build::new(v);
    start.first_forwards()?;
    start.shares()?;
    let both = [true, false];
    let fills = both.into_iter().flat_map(|before_i| both.map(|before_f| Fill { before_i, before_f }));
    let mut best: Option<Waves> = None;
    for fill in fills {
        let below = best.as_ref().map_or(f64::INFINITY, |best| best.span - v.epsilon);
        if start.span() < below {
            best = variant(&start, fill).filter(|next| next.span < below).or(best);
        }
    }
    best
}

/// Builds the rows of a variant repeatedly, with the idle times of the previous build as slack, while the span falls.
fn variant(start: &Build, fill: Fill) -> Option<Waves> {
    let mut best = Build { fill, ..start.clone() }.run(f64::INFINITY)?;
    loop {
        let most = best.lag.iter().copied().fold(0.0, f64::max);
        let spare = best.lag.iter().map(|lag| most - lag).collect();
        match (Build { fill, spare, ..start.clone() }).run(best.span - start.v.epsilon) {
            Some(next) => best = next,
            None => return Some(best),
        }
    }
}

#[derive(Clone, Default)]
struct Rank {
    row: BlockRow,
    now: f64,
    held: f64,
    /// Seconds by which its work and idle time are behind the work of the busiest rank.
    lag: f64,
    /// Ends of its passes.
    ends: [Vec<f64>; PERIOD],
    /// W that can run, in the order of their I.
    weights: VecDeque<Pass>,
}

#[derive(Clone)]
struct Build<'a> {
    v: &'a V<'a>,
    fill: Fill,
    ranks: Vec<Rank>,
    most_lag: f64,
    /// Difference between the most idle rank's lag and each rank's own, in the previous build.
    spare: Vec<f64>,
    most_work: f64,
}

impl<'a> Build<'a> {
    fn new(v: &'a V<'a>) -> Build<'a> {
        let microbatches = v.microbatches as f64;
        let work: Vec<f64> = (0..v.ranks)
            .map(|rank| microbatches * Pass::ALL.iter().map(|&pass| v.seconds(rank, pass)).sum::<f64>())
            .collect();
        let most_work = work.iter().copied().fold(0.0, f64::max);
        let ranks = work.iter().map(|work| Rank { lag: work - most_work, ..Rank::default() }).collect();
        let fill = Fill { before_i: true, before_f: true };
        Build { v, fill, ranks, most_lag: 0.0, spare: vec![0.0; v.ranks], most_work }
    }

    /// Returns `None` if the waves do not fit, or once the span is known to be at least `below`.
    fn run(mut self, below: f64) -> Option<Waves> {
        for _ in 0..2 * self.v.microbatches {
            if self.span() >= below {
                return None;
            }
            self.backwards()?;
            self.forwards()?;
        }
        for rank in 0..self.v.ranks {
            while !self.ranks[rank].weights.is_empty() {
                self.weight(rank)?;
            }
        }
        let (span, lag) = (self.span(), self.ranks.iter().map(|rank| rank.lag).collect());
        (span < below).then(|| Waves { span, lag, rows: self.ranks.into_iter().map(|rank| rank.row).collect() })
    }

    /// Returns the span so far, which never falls.
    fn span(&self) -> f64 {
        self.most_work + self.most_lag
    }

    /// Runs the first micro-batch down and up, and further F of chunk 0 on the ranks that wait for it.
    fn first_forwards(&mut self) -> Option<()> {
        (0..self.v.ranks).try_for_each(|rank| self.put(rank, F0))?;
        for rank in (0..self.v.ranks).rev() {
            if let Some(arrival) = self.arrival(rank, F1) {
                let (seconds, memory) = (self.v.seconds(rank, F0), self.v.memory(rank, F0));
                let share = memory * (2 + 2 * rank) as f64; // this one, and a pair for each rank before
                while self.count(rank, F0) < self.v.microbatches
                    && self.v.fits(rank, self.ranks[rank].held + share)
                    && !self.after(self.ranks[rank].now + seconds, arrival)
                {
                    (0..=rank).try_for_each(|rank| self.put(rank, F0))?;
                }
            }
            self.put(rank, F1)?;
        }
        Some(())
    }

    /// Runs forwards of both chunks in turns until each rank has the number of the previous rank, and more of chunk 1.
    fn shares(&mut self) -> Option<()> {
        let mut chunks = [F0, F1].into_iter().cycle();
        for rank in 1..self.v.ranks {
            while self.forward_count(rank) < self.forward_count(rank - 1)
                || self.count(rank, F1) <= self.count(rank - 1, F1) && self.count(rank - 1, F1) < self.v.microbatches
            {
                let chunk = chunks.next()?;
                for rank in (rank..self.v.ranks).rev() {
                    if self.count(rank, chunk) < self.v.microbatches {
                        self.put(rank, chunk)?;
                    }
                }
            }
        }
        Some(())
    }

    /// Runs one I on each rank: of chunk 0 if it has arrived.
    fn backwards(&mut self) -> Option<()> {
        let ranks = self.v.ranks;
        let zero: Vec<bool> = (0..ranks).map(|rank| self.runs_i0(rank)).collect();
        let down = (0..ranks).rev().filter(|&rank| zero[rank]).map(|rank| (rank, I0));
        let up = (0..ranks).filter(|&rank| !zero[rank]).map(|rank| (rank, I1));
        for (rank, pass) in down.chain(up) {
            self.fill(rank, pass, pass == I0 || self.fill.before_i)?;
            self.put(rank, pass)?;
        }
        Some(())
    }

    fn runs_i0(&self, rank: usize) -> bool {
        let nth = self.count(rank, I0);
        let arrived = rank + 1 == self.v.ranks || self.count(rank + 1, I0) > nth;
        nth < self.count(rank, I1) && (arrived || self.count(rank, I1) >= self.v.microbatches)
    }

    /// Runs one F on each rank that has an input: of chunk 1 first.
    fn forwards(&mut self) -> Option<()> {
        for rank in 0..self.v.ranks {
            let Some(pass) = self.next_forward(rank) else { continue };
            while !self.v.fits(rank, self.ranks[rank].held + self.v.memory(rank, pass)) {
                self.weight(rank)?;
            }
            self.fill(rank, pass, self.fill.before_f)?;
            self.put(rank, pass)?;
        }
        Some(())
    }

    fn next_forward(&self, rank: usize) -> Option<Pass> {
        let (zero, one) = (self.count(rank, F0), self.count(rank, F1));
        if one >= self.v.microbatches {
            None
        } else if one >= zero {
            Some(F0)
        } else if rank + 1 == self.v.ranks || self.count(rank + 1, F1) > one {
            Some(F1)
        } else {
            let arrived = rank == 0 || self.count(rank - 1, F0) > zero;
            (zero < self.v.microbatches && arrived).then_some(F0)
        }
    }

    /// Runs the W that end before the pass arrives. With `part`, one more runs if the gap left exceeds the slack.
    fn fill(&mut self, rank: usize, pass: Pass, part: bool) -> Option<()> {
        let Some(arrival) = self.arrival(rank, pass) else { return Some(()) };
        while let Some(&weight) = self.ranks[rank].weights.front() {
            if self.after(self.ranks[rank].now + self.v.seconds(rank, weight), arrival) {
                break;
            }
            self.weight(rank)?;
        }
        let slack = self.most_lag.max(self.spare[rank]) - self.ranks[rank].lag;
        if part && !self.ranks[rank].weights.is_empty() && self.after(arrival - self.ranks[rank].now, slack) {
            self.weight(rank)?;
        }
        Some(())
    }

    /// Returns the arrival of a rank's next such pass from another rank. Returns `None` if no other rank sends it, or its input
    /// has not been computed.
    fn arrival(&self, rank: usize, pass: Pass) -> Option<f64> {
        let (other, hop) = pass.from(rank, self.v.ranks)?;
        Some(self.ranks[other].ends[pass as usize].get(self.count(rank, pass))? + self.v.costs.comm[hop])
    }

    fn count(&self, rank: usize, pass: Pass) -> usize {
        self.ranks[rank].ends[pass as usize].len()
    }

    fn forward_count(&self, rank: usize) -> usize {
        self.count(rank, F0) + self.count(rank, F1)
    }

    /// Returns whether one time is later than another.
    fn after(&self, a: f64, b: f64) -> bool {
        a > b + self.v.epsilon
    }

    fn weight(&mut self, rank: usize) -> Option<()> {
        let pass = self.ranks[rank].weights.pop_front()?;
        self.put(rank, pass)
    }

    /// Runs a rank's next such pass. Returns `None` if it does not fit, or an input has not been computed.
    fn put(&mut self, rank: usize, pass: Pass) -> Option<()> {
        let nth = self.count(rank, pass);
        let ready = pass.before().is_none_or(|before| self.count(rank, before) > nth);
        let arrival = self.arrival(rank, pass);
        let missing = pass.from(rank, self.v.ranks).is_some() && arrival.is_none();
        let held = self.ranks[rank].held + self.v.memory(rank, pass);
        if nth >= self.v.microbatches || !ready || missing || !self.v.fits(rank, held) {
            return None;
        }
        let here = &mut self.ranks[rank];
        let idle = arrival.map_or(0.0, |arrival| (arrival - here.now).max(0.0));
        if !here.row.is_empty() {
            here.lag += idle;
            self.most_lag = self.most_lag.max(here.lag);
        }
        here.now += idle + self.v.seconds(rank, pass);
        here.held = held;
        here.ends[pass as usize].push(here.now);
        here.row.push(Some(pass));
        here.weights.extend(pass.weight());
        Some(())
    }
}
