//! The order of searches: one bound of all, then branch and bound and large-neighbourhood search, side by side or in turn.

use std::thread;

use super::branch::Branch;
use super::bucket::eliminate;
use super::clock::Clock;
use super::dual::Reduced;
use super::improve::improve;
use super::net::{Infeasible, Net};
use super::polish::polish;
use super::presolve::presolve;
use super::shared::Shared;

/// Rounds of ascent for the bound of all; of a net that shrank; at the nodes of a search.
const ROUNDS: [usize; 3] = [1500, 200, 30];

/// Share of the clock for the bound of all.
const ROOT: f64 = 0.2;

/// Share of the clock for each search of all that may not end.
const ATTEMPT: f64 = 0.15;

/// How far above the bound, relative to it, a first assignment is looked for.
const DISTANCES: [f64; 5] = [0.02, 0.1, 0.5, 2.5, f64::INFINITY];

/// Share of what is left that goes to neighbourhoods where they have no thread of their own.
const IN_TURN: f64 = 0.6;

/// Share of the gap that the bound is first meant to rise by, and the one from which on it is not worth an attempt.
const RISES: [f64; 2] = [0.5, 0.05];

/// Searches of a net that share their results.
pub(crate) struct Search<'s> {
    /// State shared with the other searches.
    pub(crate) shared: &'s Shared,
    /// The relative gain below which no assignment is looked for.
    pub(crate) margin: f64,
}

impl Search<'_> {
    /// Searches until the clock ends it or the best assignment is proved. The answer is a bound.
    pub(crate) fn run(&self, mut net: Net, clock: &mut Clock, threads: usize) -> f64 {
        if clock.over() {
            return f64::NEG_INFINITY;
        }
        let unlimited = self.unlimited(&net, clock);
        if self.proved(unlimited) {
            return unlimited;
        }
        let reduced = self.root(&mut net, clock);
        let (net, above) = (&net, &reduced.above);
        thread::scope(|scope| {
            for seed in 1..threads {
                let mut clock = clock.clone();
                let improve = move || improve(net, above, self.shared, &mut clock, self.margin, seed as u64);
                // Where the system has no more threads, fewer look.
                if thread::Builder::new().spawn_scoped(scope, improve).is_err() {
                    break;
                }
            }
            let bound = self.prove(net, above, reduced.bound.max(unlimited), clock, threads <= 1);
            self.shared.finish();
            bound
        })
    }

    /// The bound of all, with which costs move in the net, and a first assignment if one comes of it.
    fn root(&self, net: &mut Net, clock: &mut Clock) -> Reduced {
        let mut part = clock.share(ROOT);
        let reduced = self.branch(&mut part, f64::INFINITY, ROUNDS[0]).root(net);
        clock.spend(part.done());
        let mut best = self.shared.best();
        if best.cost.is_finite() {
            polish(net, &mut best, clock);
            self.shared.offer(best.cost, || best.choice);
        }
        reduced
    }

    fn branch<'c>(&'c self, clock: &'c mut Clock, ceiling: f64, rounds: usize) -> Branch<'c> {
        Branch { clock, shared: self.shared, margin: self.margin, ceiling, rounds: [rounds, ROUNDS[2]], held: 0 }
    }

    fn proved(&self, bound: f64) -> bool {
        let cost = self.shared.cost();
        bound == f64::INFINITY || bound >= cost - self.margin * cost.abs()
    }

    /// The cost of the best assignment without the limit: a bound, and where that assignment fits, an answer.
    fn unlimited(&self, net: &Net, clock: &mut Clock) -> f64 {
        let loads = vec![Vec::new(); net.cost.len()];
        let mut free = Net { loads, room: Vec::new(), price: Vec::new(), spent: vec![0], ..net.clone() };
        free.touched.fill(true);
        if presolve(&mut free, clock).is_err() {
            return f64::INFINITY;
        }
        let Some((cost, choice)) = Some(&free).filter(|_| !clock.over()).and_then(|free| eliminate(free, clock)) else {
            return f64::NEG_INFINITY;
        };
        let choice = free.restore(&choice);
        if net.fits(&choice) {
            self.shared.offer(cost, || choice);
        }
        cost
    }

    /// Raises the bound of a net towards the cost of the best assignment, within the clock. It searches all assignments first. If
    /// that search does not end, it searches for assignments below a cost between the bound and the incumbent.
    fn prove(&self, core: &Net, above: &[Vec<f64>], first: f64, clock: &mut Clock, alone: bool) -> f64 {
        let mut net = core.clone();
        let mut bound = self.begin(&mut net, first, clock);
        if alone && !self.proved(bound) && self.shared.cost().is_finite() {
            let mut part = clock.share(IN_TURN);
            improve(core, above, self.shared, &mut part, self.margin, 0);
            clock.spend(part.done());
        }
        let mut rise = RISES[0];
        while !self.proved(bound) && !clock.over() && rise > RISES[1] {
            let ceiling = bound + rise * (self.shared.cost() - bound);
            bound = self.attempt(&mut net, bound, clock, ATTEMPT, ceiling);
            if bound < ceiling {
                rise *= 0.5;
            }
        }
        if self.proved(bound) || clock.over() {
            return bound;
        }
        self.attempt(&mut net, bound, clock, 1.0, f64::INFINITY)
    }

    /// Searches for a first assignment, among those that cost little more than the bound, then among more and more; and
    /// among all that cost less than it.
    fn begin(&self, net: &mut Net, first: f64, clock: &mut Clock) -> f64 {
        let mut bound = first;
        for distance in DISTANCES {
            if self.proved(bound) || clock.over() {
                break;
            }
            if self.shared.cost().is_finite() {
                return self.attempt(net, bound, clock, ATTEMPT, f64::INFINITY);
            }
            bound = self.attempt(net, bound, clock, ATTEMPT, first + distance * first.abs().max(f64::MIN_POSITIVE));
        }
        bound
    }

    /// Searches a net with a share of the clock, after pruning choices whose reduced cost exceeds the incumbent.
    /// The answer is a bound, at most the ceiling.
    fn attempt(&self, net: &mut Net, known: f64, clock: &mut Clock, share: f64, ceiling: f64) -> f64 {
        let mut part = clock.share(share);
        let bound = match self.branch(&mut part, f64::INFINITY, ROUNDS[1]).shrink(net, known, true) {
            Err(Infeasible) => f64::INFINITY,
            Ok((bound, None)) => bound,
            Ok((bound, Some(_))) => self.branch(&mut part, ceiling, ROUNDS[2]).search(net.clone(), bound, true),
        };
        clock.spend(part.done());
        bound.max(known)
    }
}
