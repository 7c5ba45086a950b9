//! The order of searches: a first assignment, one bound of all, then branch and bound and the searches for better assignments, during each
//! other or in turn.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use super::branch::Branch;
use super::bucket::eliminate;
use super::clock::Clock;
use super::construct::construct;
use super::dual::Reduced;
use super::improve::Improve;
use super::incumbent::Incumbent;
use super::net::{Infeasible, Net};
use super::oscillate::Oscillation;
use super::polish::polish;
use super::presolve::presolve;
use super::random::Random;
use super::shared::{Best, Shared};

/// Rounds of ascent for the bound of all; of a net that shrank; at the nodes of a search.
const ROUNDS: [usize; 3] = [1500, 200, 30];

/// Share of the clock for the bound of all.
const ROOT: f64 = 0.1;

/// Share of the clock for a first assignment.
const FIRST: f64 = 0.05;

/// Share of the clock for each search of all that may not end.
const ATTEMPT: f64 = 0.15;

/// How far above the bound, relative to it, a first assignment is looked for.
const DISTANCES: [f64; 5] = [0.02, 0.1, 0.5, 2.5, f64::INFINITY];

/// Share of what is left that goes to better assignments: where no thread looks for them alone, and where a proof is far.
const IN_TURN: [f64; 2] = [0.6, 0.9];

/// Entries of a net that takes seconds: there a first assignment comes before everything else, and the limit is crossed.
const LARGE: usize = 500_000;

/// Gap, relative to the cost, from which on a proof for a large net is far.
const FAR: f64 = 0.1;

/// Turns of equal length, the most of one that a search across the limit takes at once, and steps of neighbourhoods for each of its
/// steps: without a better assignment, and with one.
const TURNS: u32 = 8;
const ACROSS: f64 = 0.6;
const NEIGHBOURHOODS: [f64; 2] = [0.1, 0.5];

/// Interval between checks for an incumbent.
const PAUSE: Duration = Duration::from_millis(1);

/// Share of the gap that the bound is first meant to rise by, and the one from which on it is not worth an attempt.
const RISES: [f64; 2] = [0.5, 0.05];

/// A net whose costs the bound of all moved, and its reduced costs.
type Guide = (Net, Vec<Vec<f64>>);

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
        if net.entries() > LARGE && self.first(&net, clock).is_err() {
            return f64::INFINITY;
        }
        let unlimited = self.unlimited(&net, clock);
        if self.proved(unlimited) {
            return unlimited;
        }
        let first = net.clone();
        let guide = OnceLock::new();
        thread::scope(|scope| {
            for seed in 1..threads {
                let (mut clock, first, guide) = (clock.clone(), &first, &guide);
                let helper = thread::Builder::new()
                    .spawn_scoped(scope, move || self.improve_along(first, guide, &mut clock, seed as u64));
                // Where the system has no more threads, fewer look.
                if helper.is_err() {
                    break;
                }
            }
            let reduced = self.root(&mut net, clock);
            let mut bound = reduced.bound.max(unlimited);
            if self.shared.cost() == f64::INFINITY && self.first(&net, clock).is_err() {
                bound = f64::INFINITY;
            }
            let (net, above) = guide.get_or_init(|| (net, reduced.above));
            let bound = self.prove(net, above, bound, clock, threads <= 1);
            self.shared.finish();
            bound
        })
    }

    /// Offers a first assignment, if one is found soon.
    fn first(&self, net: &Net, clock: &mut Clock) -> Result<(), Infeasible> {
        let mut part = clock.share(FIRST);
        let found = construct(net, &mut part)?;
        clock.spend(part.done());
        if let Some(choice) = found {
            let cost = net.cost_of(&choice);
            self.polish(net, Best { choice, cost }, clock);
        }
        Ok(())
    }

    fn polish(&self, net: &Net, best: Best, clock: &mut Clock) {
        let mut best = Incumbent::new(net, best);
        polish(&mut best, clock);
        self.shared.offer(best.cost, || best.choice);
    }

    /// Improves the first assignment until there is a bound of all, and then with its costs.
    fn improve_along(&self, first: &Net, guide: &OnceLock<Guide>, clock: &mut Clock, seed: u64) {
        let mut random = Random::new(seed);
        if first.entries() > LARGE
            && self.shared.cost() == f64::INFINITY
            && let Some(mut across) = Oscillation::begin(first, clock, &mut random)
        {
            while self.shared.cost() == f64::INFINITY && guide.get().is_none() && !self.is_over(clock) {
                across.step(self.shared, clock, &mut random);
            }
        }
        while !self.is_over(clock) && guide.get().is_none() {
            let improve = Improve { net: first, above: &[], shared: self.shared, margin: self.margin };
            improve.run(clock, &mut random, || guide.get().is_some());
            thread::sleep(PAUSE);
        }
        while let Some((net, above)) = guide.get().filter(|_| !self.is_over(clock)) {
            self.better(net, above, clock, &mut random);
            thread::sleep(PAUSE);
        }
    }

    /// Returns whether the search ends: at the clock, or because another thread has ended it.
    fn is_over(&self, clock: &Clock) -> bool {
        clock.over() || self.shared.finished()
    }

    /// Betters the incumbent by neighbourhoods; where a net is large, in turns with a search across the limit.
    fn better(&self, net: &Net, above: &[Vec<f64>], clock: &mut Clock, random: &mut Random) {
        let improve = Improve { net, above, shared: self.shared, margin: self.margin };
        let mut part = clock.share(1.0 / f64::from(TURNS));
        let across = if net.entries() > LARGE { Oscillation::begin(net, &mut part, random) } else { None };
        clock.spend(part.done());
        let Some(mut across) = across else { return improve.run(clock, random, || false) };
        for turns in (1..=TURNS).rev() {
            let mut turn = clock.share(1.0 / f64::from(turns));
            while !turn.over() && !self.shared.finished() {
                let mut part = turn.share(ACROSS);
                let betters = across.run(self.shared, &mut part, random);
                let share = NEIGHBOURHOODS[usize::from(betters)];
                let mut rest = turn.part((share * part.done() as f64) as u64);
                improve.run(&mut rest, random, || false);
                turn.spend(part.done() + rest.done());
                across.restart(&self.shared.best(), &mut turn, random);
            }
            clock.spend(turn.done());
        }
    }

    /// The bound of all, with which costs move in the net, and a first assignment if one comes of it.
    fn root(&self, net: &mut Net, clock: &mut Clock) -> Reduced {
        let mut part = clock.share(ROOT);
        let reduced = self.branch(&mut part, f64::INFINITY, ROUNDS[0]).root(net);
        clock.spend(part.done());
        let best = self.shared.best();
        if best.cost.is_finite() {
            self.polish(net, best, clock);
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
    /// that search does not end, it searches for assignments below a cost between the bound and the incumbent. Where a proof is
    /// far, better assignments come first.
    fn prove(&self, core: &Net, above: &[Vec<f64>], first: f64, clock: &mut Clock, alone: bool) -> f64 {
        if self.proved(first) {
            return first;
        }
        let cost = self.shared.cost();
        let is_wide = cost == f64::INFINITY || cost - first > FAR * cost.abs();
        let is_far = is_wide && core.entries() > LARGE;
        if is_far {
            self.better_in_turn(core, above, clock, IN_TURN[1]);
        }
        let mut net = core.clone();
        let mut bound = self.begin(&mut net, first, clock);
        if alone && !is_far && !self.proved(bound) && self.shared.cost().is_finite() {
            self.better_in_turn(core, above, clock, IN_TURN[0]);
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

    fn better_in_turn(&self, core: &Net, above: &[Vec<f64>], clock: &mut Clock, share: f64) {
        let mut part = clock.share(share);
        self.better(core, above, &mut part, &mut Random::new(0));
        clock.spend(part.done());
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
