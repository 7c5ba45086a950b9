//! Search across the limit (strategic oscillation, Glover 1977). The limit becomes a price of use at each time. Without it, forests
//! of nodes take their best choices together. Prices rise where the limit is exceeded and fall where memory is left.

use super::clock::Clock;
use super::construct::{construct, even_price};
use super::dual::prefix;
use super::forest::Forest;
use super::net::Net;
use super::random::Random;
use super::shared::{Best, Shared};

/// Rise of the sum of prices in a step, and fall of a price: at first, and at least.
const PACE: [f64; 2] = [0.1, 0.01];

/// Factor on the pace whenever the limit is exceeded again.
const SLOWER: f64 = 0.8;

/// A search that is slower than this pace ends if its assignments cost more than the best by more than this share.
const SOON: f64 = 0.06;
const NEAR: f64 = 0.01;

/// Prices do not rise while the excess falls by at least this share in a step.
const FALLS: f64 = 0.05;

/// Share of the limit: for less memory left, a price falls more slowly, and for less excess it rises more slowly.
const LOOSE: f64 = 0.01;

/// The slowest rise relative to the pace, and how much quicker each further one is.
const SLOWEST: f64 = 0.02;
const QUICKER: f64 = 1.05;

/// Factor on all prices at a restart. The prices of a node are between 1/4 and 4 times as high for a number of steps.
const LOWER: f64 = 0.7;
const NOISE: f64 = 2.0;
const NOISY: usize = 10;

/// Forests at the first prices.
const FIRST: usize = 10;

/// A search across the limit: choices that may exceed it, and prices.
pub(crate) struct Oscillation<'n> {
    net: &'n Net,
    nodes: Vec<usize>,
    choice: Vec<usize>,
    price: Vec<f64>,
    pace: f64,
    rise: f64,
    /// Excess over all times before the last step.
    excess: f64,
    /// Factor on the prices for each node, and steps before it is 1 again.
    factor: Vec<f64>,
    noisy: usize,
    /// Solver steps of prices and use in a step.
    effort: u64,
}

impl<'n> Oscillation<'n> {
    /// Begins with the net's prices, and the choices that they make cheap. `None` without a limit, or if the clock ends.
    pub(crate) fn begin(net: &'n Net, clock: &mut Clock, random: &mut Random) -> Option<Oscillation<'n>> {
        if net.room.is_empty() {
            return None;
        }
        let even = vec![1.0; net.cost.len()];
        let has_prices = net.price.iter().any(|&price| price > 0.0);
        let price = if has_prices { net.price.clone() } else { vec![even_price(net); net.price.len()] };
        let cost = priced(net, &price, &even);
        let choice = dive(net, cost.clone(), clock)?;
        let amounts: usize = net.loads.iter().flatten().map(|load| 6 + load.amount.len()).sum();
        let mut begun = Oscillation {
            net,
            nodes: net.nodes().collect(),
            choice,
            price,
            pace: PACE[0],
            rise: 0.0,
            excess: f64::INFINITY,
            factor: even,
            noisy: 0,
            effort: (amounts + 4 * net.room.len() + 40 * net.edges.len()) as u64,
        };
        for _ in 0..FIRST {
            begun.improve(&cost, clock, random);
        }
        Some(begun)
    }

    /// Continues at lower prices, where for some steps each node has a price of its own (noising, Charon and Hudry 1993). It
    /// begins with an assignment or, in every other case, with the choices that the prices make cheap.
    pub(crate) fn restart(&mut self, best: &Best, clock: &mut Clock, random: &mut Random) {
        if !best.choice.is_empty() {
            self.choice.clone_from(&best.choice);
        }
        self.price.iter_mut().for_each(|price| *price *= LOWER);
        self.factor.iter_mut().for_each(|factor| *factor = (NOISE * (2.0 * random.unit() - 1.0)).exp2());
        (self.pace, self.rise, self.excess, self.noisy) = (PACE[0], 0.0, f64::INFINITY, NOISY);
        if random.below(2) == 0
            && let Some(choice) = dive(self.net, priced(self.net, &self.price, &self.factor), clock)
        {
            self.choice = choice;
        }
    }

    /// Offers every assignment within the limit that it meets, until its pace is the least, the clock stops, or others end the
    /// search. It ends at the pace [`SOON`] if the assignments cost too much. Returns whether one was the best.
    pub(crate) fn run(&mut self, shared: &Shared, clock: &mut Clock, random: &mut Random) -> bool {
        let mut least = f64::INFINITY;
        let mut betters = false;
        while self.pace > PACE[1] && !clock.over() && !shared.finished() {
            if self.pace < SOON && least > shared.cost() + NEAR * shared.cost().abs() {
                break;
            }
            let (cost, is_best) = self.step(shared, clock, random);
            least = least.min(cost);
            betters |= is_best;
        }
        betters
    }

    /// Lets a forest of nodes take its best choices, and adapts the prices. The answer is the cost, infinite above the limit, and
    /// whether it was the best.
    pub(crate) fn step(&mut self, shared: &Shared, clock: &mut Clock, random: &mut Random) -> (f64, bool) {
        if self.noisy == 0 {
            self.factor.fill(1.0);
        }
        self.noisy = self.noisy.saturating_sub(1);
        let prices = priced(self.net, &self.price, &self.factor);
        self.improve(&prices, clock, random);
        let left = self.net.left(&self.choice);
        if left.iter().any(|&left| left < 0) {
            self.raise(&left);
            return (f64::INFINITY, false);
        }
        let cost = self.net.cost_of(&self.choice);
        let is_best = shared.offer(cost, || self.choice.clone());
        self.lower(&left);
        (cost, is_best)
    }

    /// Lets a forest of nodes take its best choices.
    fn improve(&mut self, cost: &[Vec<f64>], clock: &mut Clock, random: &mut Random) {
        let forest = Forest::grow(self.net, &self.nodes, random);
        clock.spend(forest.choose(self.net, cost, &mut self.choice) + self.effort);
    }

    /// Raises the sum of prices at the times of excess, unless that is falling.
    fn raise(&mut self, left: &[i64]) {
        if self.excess == 0.0 {
            self.pace = (SLOWER * self.pace).max(PACE[1]);
        }
        let excess: f64 = left.iter().map(|&left| -left.min(0) as f64).sum();
        let is_falling = excess < (1.0 - FALLS) * self.excess;
        self.excess = excess;
        if is_falling {
            self.rise = 0.0;
            return;
        }
        let worst = left.iter().zip(&self.net.room).map(|(&left, &room)| share(-left, room)).fold(SLOWEST, f64::max);
        self.rise = (self.rise * QUICKER).max(self.pace * worst).min(self.pace);
        let unit = self.rise * self.price.iter().sum::<f64>().max(f64::MIN_POSITIVE) / excess;
        self.price.iter_mut().zip(left).for_each(|(price, &left)| *price -= unit * left.min(0) as f64);
    }

    /// Lowers prices where memory is left.
    fn lower(&mut self, left: &[i64]) {
        (self.excess, self.rise) = (0.0, 0.0);
        for ((price, &left), &room) in self.price.iter_mut().zip(left).zip(&self.net.room) {
            *price *= 1.0 - self.pace * share(left, room);
        }
    }
}

/// The choices of a construction that pays for use, and has no limit.
fn dive(net: &Net, cost: Vec<Vec<f64>>, clock: &mut Clock) -> Option<Vec<usize>> {
    let loads = vec![Vec::new(); net.cost.len()];
    let (edges, near) = (net.edges.clone(), net.near.clone());
    let unlimited = Net { cost, loads, edges, near, spent: vec![0], ..Net::default() };
    construct(&unlimited, clock).ok()?
}

/// A part of [`LOOSE`] of a limit, at most 1.
fn share(memory: i64, limit: i64) -> f64 {
    (memory as f64 / (LOOSE * limit as f64).max(1.0)).min(1.0)
}

/// The cost of every choice with its use at its prices.
fn priced(net: &Net, price: &[f64], factor: &[f64]) -> Vec<Vec<f64>> {
    let sums = prefix(price);
    let mut cost = net.cost.clone();
    for ((cost, loads), factor) in cost.iter_mut().zip(&net.loads).zip(factor) {
        for load in loads {
            let price = factor * (sums[load.hi] - sums[load.lo]);
            cost.iter_mut().zip(&load.amount).for_each(|(cost, &amount)| *cost += price * amount as f64);
        }
    }
    cost
}
