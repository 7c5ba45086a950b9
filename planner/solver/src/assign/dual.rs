//! Lower bounds by soft arc consistency: cost shifting between nodes and edges raises the sum of their minima
//! (sequential reweighted message passing, Kolmogorov 2015). The memory limit has Lagrange multipliers (Lagrangian
//! relaxation).
//!
//! With `m` the costs shifted from edges to their ends, and `p >= 0` the multiplier of use at each time, every
//! assignment costs at least
//! `constant + Σ_v min (cost + p·use + Σ_e m) + Σ_e min (table - m - m) - p·room`.

use super::clock::Clock;
use super::net::Net;

/// Relative progress below which an ascent ends.
const SLOWEST: f64 = 1e-5;

/// A lower bound of a net, with its messages and multipliers.
pub(crate) struct Dual<'n> {
    net: &'n Net,
    nodes: Vec<usize>,
    /// Costs shifted from an edge to its ends, `a` first.
    message: Vec<[Vec<f64>; 2]>,
    /// Cost of each choice of a node, including use times multiplier.
    priced: Vec<Vec<f64>>,
    price: Vec<f64>,
    /// Direction of the last multiplier step.
    drift: Vec<f64>,
    /// Best bound so far; its messages and multipliers are stored.
    pub(crate) bound: f64,
    /// Fraction of the distance to the target that a step aims at.
    pub(crate) pace: f64,
    /// Solver steps per round.
    effort: u64,
    best: (Vec<[Vec<f64>; 2]>, Vec<f64>),
}

impl<'n> Dual<'n> {
    /// Starts with the net's multipliers and no messages.
    pub(crate) fn new(net: &'n Net) -> Dual<'n> {
        let messages = net.edges.iter().map(|edge| {
            if edge.alive() {
                [vec![0.0; net.choices(edge.a)], vec![0.0; net.choices(edge.b)]]
            } else {
                [Vec::new(), Vec::new()]
            }
        });
        let message: Vec<_> = messages.collect();
        let mut dual = Dual {
            net,
            nodes: net.nodes().collect(),
            best: (message.clone(), net.price.clone()),
            message,
            priced: net.cost.clone(),
            price: net.price.clone(),
            drift: vec![0.0; net.price.len()],
            effort: effort(net),
            pace: 0.1,
            bound: f64::NEG_INFINITY,
        };
        dual.reprice();
        dual
    }

    /// Recomputes costs of choices with the current multipliers.
    fn reprice(&mut self) {
        let sums = prefix(&self.price);
        for &node in &self.nodes {
            self.priced[node].clone_from(&self.net.cost[node]);
            for load in &self.net.loads[node] {
                let price = sums[load.hi] - sums[load.lo];
                if price > 0.0 {
                    self.priced[node]
                        .iter_mut()
                        .zip(&load.amount)
                        .for_each(|(cost, &used)| *cost += price * used as f64);
                }
            }
        }
    }

    /// Costs of a node including its messages.
    fn reduced(&self, node: usize) -> Vec<f64> {
        let mut sum = self.priced[node].clone();
        for &edge in &self.net.near[node] {
            let given = &self.message[edge][usize::from(self.net.edges[edge].b == node)];
            sum.iter_mut().zip(given).for_each(|(sum, given)| *sum += given);
        }
        sum
    }

    /// Passes messages along the node order, or against it.
    fn pass(&mut self, forward: bool) {
        let count = self.nodes.len();
        for place in 0..count {
            let node = self.nodes[if forward { place } else { count - 1 - place }];
            let mut counts = [0usize; 2];
            for &edge in &self.net.near[node] {
                let behind = (self.net.edges[edge].other(node) < node) == forward;
                counts[usize::from(behind)] += 1;
                if behind {
                    self.receive(edge, node);
                }
            }
            let sum = self.reduced(node);
            let share = 1.0 / counts[0].max(counts[1]).max(1) as f64;
            for &edge in &self.net.near[node] {
                if (self.net.edges[edge].other(node) < node) != forward {
                    let given = &mut self.message[edge][usize::from(self.net.edges[edge].b == node)];
                    given.iter_mut().zip(&sum).for_each(|(given, sum)| *given -= share * sum);
                }
            }
        }
    }

    /// Shifts as much cost as possible from an edge to a node.
    fn receive(&mut self, edge: usize, node: usize) {
        let [to_a, to_b] = &mut self.message[edge];
        let edge = &self.net.edges[edge];
        let rows = edge.table.chunks_exact(to_b.len());
        if edge.a == node {
            to_a.iter_mut().zip(rows).for_each(|(given, row)| *given = least_difference(row, to_b));
        } else {
            to_b.fill(f64::INFINITY);
            for (a, row) in to_a.iter().zip(rows) {
                to_b.iter_mut().zip(row).for_each(|(least, cost)| *least = lesser(cost - a, *least));
            }
        }
    }

    /// Current bound, and the cheapest choice of each node.
    fn value(&self) -> (f64, Vec<usize>) {
        let paid: f64 = self.price.iter().zip(&self.net.room).map(|(price, &room)| price * room as f64).sum();
        let mut bound = self.net.constant - paid;
        let mut cheapest = vec![0; self.net.cost.len()];
        for &node in &self.nodes {
            let reduced = self.reduced(node);
            let (choice, cost) =
                reduced.iter().enumerate().min_by(|one, other| one.1.total_cmp(other.1)).expect("a node has choices");
            cheapest[node] = choice;
            bound += cost;
        }
        for (edge, [to_a, to_b]) in self.net.edges.iter().zip(&self.message).filter(|(edge, _)| edge.alive()) {
            let rows = edge.table.chunks_exact(to_b.len()).zip(to_a);
            let least = rows.map(|(row, a)| least_difference(row, to_b) - a);
            bound += least.fold(f64::INFINITY, f64::min);
        }
        (bound, cheapest)
    }

    /// Ascends for a number of rounds; `target` is the cost of an assignment, infinite if none is known.
    pub(crate) fn ascend(&mut self, rounds: usize, target: f64, clock: &mut Clock) {
        let mut stale = 0;
        for _ in 0..rounds {
            clock.spend(self.effort);
            self.pass(true);
            self.pass(false);
            let (bound, cheapest) = self.value();
            if bound > self.bound {
                stale = 0;
                self.bound = bound;
                self.best.0.clone_from(&self.message);
                self.best.1.clone_from(&self.price);
                self.pace = (self.pace * 1.2).min(1.0);
            } else {
                stale += 1;
            }
            if self.bound >= target || self.pace < SLOWEST || clock.over() {
                break;
            }
            if stale > 6 {
                stale = 0;
                self.pace *= 0.5;
                self.settle();
            } else if !self.price.is_empty() {
                let target = if target.is_finite() { target } else { self.hope() };
                self.move_prices(&cheapest, self.pace * (target - bound).max(0.0));
            }
        }
    }

    /// Reduced costs under the best bound.
    pub(crate) fn reduced_costs(mut self) -> Reduced {
        self.settle();
        let net = self.net;
        let mut cost = net.cost.clone();
        let mut alone = vec![Vec::new(); net.cost.len()];
        for &node in &self.nodes {
            let reduced = self.reduced(node);
            for ((cost, reduced), priced) in cost[node].iter_mut().zip(&reduced).zip(&self.priced[node]) {
                *cost += reduced - priced;
            }
            let least = reduced.iter().copied().fold(f64::INFINITY, f64::min);
            alone[node] = reduced.iter().map(|cost| cost - least).collect();
        }
        let mut above = alone.clone();
        let mut table = vec![Vec::new(); net.edges.len()];
        for (number, (edge, [to_a, to_b])) in net.edges.iter().zip(&self.message).enumerate() {
            let rows = edge.table.chunks_exact(to_b.len().max(1)).zip(to_a);
            table[number] = rows.flat_map(|(row, a)| row.iter().zip(to_b).map(move |(cost, b)| cost - a - b)).collect();
            if edge.alive() {
                let (rows, columns) = least(&table[number], to_b.len());
                let all = rows.iter().copied().fold(f64::INFINITY, f64::min);
                above[edge.a].iter_mut().zip(rows).for_each(|(above, row)| *above += row - all);
                above[edge.b].iter_mut().zip(columns).for_each(|(above, column)| *above += column - all);
            }
        }
        Reduced { bound: self.bound, above, alone, cost, table, price: self.price }
    }

    /// Restores the messages and multipliers of the best bound.
    fn settle(&mut self) {
        self.message.clone_from(&self.best.0);
        self.price.clone_from(&self.best.1);
        self.drift.fill(0.0);
        self.reprice();
    }

    /// Substitute target if no assignment is known: a tenth of the way from the least to the mean costs.
    fn hope(&self) -> f64 {
        let spreads = self.nodes.iter().map(|&node| {
            let costs = &self.priced[node];
            let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
            costs.iter().sum::<f64>() / costs.len() as f64 - least
        });
        self.bound + 0.1 * spreads.sum::<f64>() + 0.01 * self.bound.abs()
    }

    /// Moves multipliers by a Polyak step towards `gain`, along the excess of the cheapest choices' use over the limit.
    fn move_prices(&mut self, cheapest: &[usize], gain: f64) {
        let mut excess = vec![0.0; self.price.len() + 1];
        for &node in &self.nodes {
            for load in &self.net.loads[node] {
                let used = load.amount[cheapest[node]] as f64;
                excess[load.lo] += used;
                excess[load.hi] -= used;
            }
        }
        let mut sum = 0.0;
        for (at, &room) in self.net.room.iter().enumerate() {
            sum += excess[at];
            excess[at] = sum - room as f64;
        }
        for ((drift, excess), price) in self.drift.iter_mut().zip(&excess).zip(&self.price) {
            *drift = 0.7 * *drift + 0.3 * excess;
            if *price == 0.0 && *drift < 0.0 {
                *drift = 0.0;
            }
        }
        let norm: f64 = self.drift.iter().map(|drift| drift * drift).sum();
        if norm > 0.0 {
            let step = gain / norm;
            self.price.iter_mut().zip(&self.drift).for_each(|(price, drift)| *price = (*price + step * drift).max(0.0));
            self.reprice();
        }
    }
}

/// Reduced costs under the best bound.
pub(crate) struct Reduced {
    /// Lower bound on the cost of every assignment.
    pub(crate) bound: f64,
    /// Reduced cost of each choice of a node above the bound.
    pub(crate) above: Vec<Vec<f64>>,
    /// Reduced cost of the node alone, without its edges.
    pub(crate) alone: Vec<Vec<f64>>,
    /// Costs of choices with their messages, without multipliers.
    pub(crate) cost: Vec<Vec<f64>>,
    /// Edge tables without the shifted costs.
    pub(crate) table: Vec<Vec<f64>>,
    /// Lagrange multipliers of use.
    pub(crate) price: Vec<f64>,
}

/// The lesser of two numbers, as one instruction.
fn lesser(one: f64, other: f64) -> f64 {
    if one < other { one } else { other }
}

/// The least of `row - less`, in lanes that a compiler can keep side by side.
fn least_difference(row: &[f64], less: &[f64]) -> f64 {
    let mut lanes = [f64::INFINITY; 8];
    let (chunks, others) = (row.chunks_exact(8), less.chunks_exact(8));
    let rest = chunks.remainder().iter().zip(others.remainder());
    let last = rest.fold(f64::INFINITY, |least, (cost, less)| lesser(cost - less, least));
    for (chunk, others) in chunks.zip(others) {
        for lane in 0..8 {
            lanes[lane] = lesser(chunk[lane] - others[lane], lanes[lane]);
        }
    }
    lanes.into_iter().fold(last, lesser)
}

/// The least cost of each row and of each column.
pub(crate) fn least(table: &[f64], wide: usize) -> (Vec<f64>, Vec<f64>) {
    let mut columns = vec![f64::INFINITY; wide];
    let mut rows = Vec::with_capacity(table.len() / wide);
    for row in table.chunks_exact(wide) {
        rows.push(row.iter().copied().fold(f64::INFINITY, f64::min));
        columns.iter_mut().zip(row).for_each(|(least, &cost)| *least = least.min(cost));
    }
    (rows, columns)
}

/// Steps of two passes, a value and a move of prices.
fn effort(net: &Net) -> u64 {
    let entries: usize = net.edges.iter().map(|edge| edge.table.len()).sum();
    let amounts: usize = net.loads.iter().flatten().map(|load| 3 + load.amount.len()).sum();
    let touched: usize = net.near.iter().map(|near| 20 + 20 * near.len()).sum();
    (2 * entries + amounts + 4 * net.room.len() + touched) as u64
}

/// Sums of all beginnings.
pub(crate) fn prefix(values: &[f64]) -> Vec<f64> {
    let sums = values.iter().scan(0.0, |sum, value| {
        *sum += value;
        Some(*sum)
    });
    std::iter::once(0.0).chain(sums).collect()
}
