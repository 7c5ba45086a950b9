//! A first assignment: node after node, each with the cheapest choice that the forbidden pairs and the limit leave open. A
//! conflict takes the last choice back (maintaining arc consistency, Sabin and Freuder 1994). After many conflicts it
//! begins again, with the nodes of conflicts first (Boussemart et al. 2004) and with use at a higher price.

use super::clock::Clock;
use super::domains::{Conflict, Domains};
use super::dual::{least, prefix};
use super::net::{Infeasible, Load, Net};

/// Conflicts of the first attempt, and how many times more each further one has.
const CONFLICTS: usize = 50;
const MORE: f64 = 1.5;

/// Weight of the spread of all uses over that of all costs at first: memory decides, costs between equals.
const FIRST: f64 = 100.0;

/// Factor on the prices of use in each further attempt.
const HIGHER: f64 = 4.0;

/// An attempt at an assignment.
struct Attempt<'n, 'c> {
    net: &'n Net,
    domains: &'c mut Domains<'n>,
    /// Sums of the prices of use of all times before each.
    prices: &'c [f64],
    /// Conflicts that closed the last choice of each node.
    conflicts: &'c mut [u32],
    clock: &'c mut Clock,
}

/// An assignment of a net within the limit; `None` where the clock ends first.
///
/// # Errors
/// There is none.
pub(crate) fn construct(net: &Net, clock: &mut Clock) -> Result<Option<Vec<usize>>, Infeasible> {
    let Ok(mut domains) = Domains::new(net) else { return Err(Infeasible) };
    let mut conflicts = vec![0; net.cost.len()];
    let lead = leads(net);
    let even = FIRST * even_price(net);
    let mut prices = net.price.clone();
    if prices.iter().all(|&price| price == 0.0) {
        prices.fill(even);
    }
    let mut most = CONFLICTS as f64;
    while !clock.over() {
        let mut order: Vec<usize> = net.nodes().filter(|&node| domains.count(node) > 1).collect();
        order.sort_by(|&one, &other| {
            conflicts[other].cmp(&conflicts[one]).then(lead[other].total_cmp(&lead[one])).then(one.cmp(&other))
        });
        let sums = prefix(&prices);
        let start = domains.mark();
        let mut attempt = Attempt { net, domains: &mut domains, prices: &sums, conflicts: &mut conflicts, clock };
        if attempt.run(&order, most as usize)? {
            return Ok(Some((0..net.cost.len()).map(|node| domains.first(node)).collect()));
        }
        domains.undo(start);
        prices.iter_mut().for_each(|price| *price = HIGHER * *price + even);
        most *= MORE;
    }
    Ok(None)
}

impl Attempt<'_, '_> {
    /// Assigns the nodes in order. Returns whether all have a choice, before `most` conflicts and before the clock ends.
    fn run(&mut self, order: &[usize], most: usize) -> Result<bool, Infeasible> {
        let mut made: Vec<(usize, usize, usize, usize)> = Vec::new();
        let (mut place, mut count) = (0, 0);
        while let Some(&node) = order.get(place) {
            let result = self.domains.fit(node).and_then(|()| {
                if self.domains.count(node) > 1 {
                    let choice = self.cheapest(node);
                    made.push((place, self.domains.mark(), node, choice));
                    self.domains.assign(node, choice)?;
                }
                Ok(())
            });
            place += 1;
            let mut conflict = result.err();
            while let Some(at) = conflict {
                let (Conflict::Pairs { node } | Conflict::Limit { node }) = at;
                self.conflicts[node] += 1;
                count += 1;
                if count > most {
                    return Ok(false);
                }
                let Some((before, mark, node, choice)) = made.pop() else { return Err(Infeasible) };
                self.domains.undo(mark);
                place = before;
                conflict = self.domains.close(node, choice).err();
            }
            self.clock.spend(std::mem::take(&mut self.domains.steps));
            if self.clock.over() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The open choice of a node whose own cost, use at its price and least costs with the neighbours sum to the least.
    fn cheapest(&mut self, node: usize) -> usize {
        let net = self.net;
        let mut cost = net.cost[node].clone();
        for load in &net.loads[node] {
            let price = self.prices[load.hi] - self.prices[load.lo];
            cost.iter_mut().zip(&load.amount).for_each(|(cost, &amount)| *cost += price * amount as f64);
        }
        for &number in &net.near[node] {
            let edge = &net.edges[number];
            self.domains.steps += edge.table.len() as u64;
            let open = self.domains.open(edge.other(node));
            let wide = net.choices(edge.b);
            if edge.a == node {
                for (cost, row) in cost.iter_mut().zip(edge.table.chunks_exact(wide)) {
                    *cost += least_open(row.iter().zip(open));
                }
            } else {
                for (j, cost) in cost.iter_mut().enumerate() {
                    *cost += least_open(edge.table[j..].iter().step_by(wide).zip(open));
                }
            }
        }
        let open = self.domains.open(node);
        let costs = cost.iter().zip(open).enumerate().filter(|(_, (_, open))| **open);
        costs.min_by(|one, other| one.1.0.total_cmp(other.1.0)).map_or(0, |(choice, _)| choice)
    }
}

fn least_open<'t>(costs: impl Iterator<Item = (&'t f64, &'t bool)>) -> f64 {
    costs.filter(|(_, open)| **open).fold(f64::INFINITY, |least, (cost, _)| least.min(*cost))
}

/// How much worse the second choice of each node is than its first.
fn leads(net: &Net) -> Vec<f64> {
    let mut sum = net.cost.clone();
    for edge in net.edges.iter().filter(|edge| edge.alive()) {
        let (rows, columns) = least(&edge.table, net.choices(edge.b));
        sum[edge.a].iter_mut().zip(rows).for_each(|(sum, row)| *sum += row);
        sum[edge.b].iter_mut().zip(columns).for_each(|(sum, column)| *sum += column);
    }
    let leads = sum.into_iter().map(|mut sum| {
        sum.sort_by(f64::total_cmp);
        if sum.len() > 1 && sum[0].is_finite() { sum[1] - sum[0] } else { 0.0 }
    });
    leads.collect()
}

/// The price at which the spread of all uses is worth the spread of all costs.
pub(crate) fn even_price(net: &Net) -> f64 {
    let spreads = net.nodes().map(|node| {
        let finite = net.cost[node].iter().copied().filter(|cost| cost.is_finite());
        (finite.clone().fold(f64::NEG_INFINITY, f64::max) - finite.fold(f64::INFINITY, f64::min)).max(0.0)
    });
    let costs: f64 = spreads.sum();
    let uses: f64 = net.loads.iter().flatten().map(Load::greatest_use).sum();
    if uses > 0.0 { costs / uses } else { 0.0 }
}
