//! Bucket elimination, node by node (Dechter 1999): exact if there is no limit and all intermediate tables are small.

use std::collections::BTreeSet;

use super::clock::Clock;
use super::net::Net;

/// A cost by the choices of some nodes, the last one's running fastest.
struct Factor {
    nodes: Vec<usize>,
    table: Vec<f64>,
}

/// A node that was taken away: its best choice by the choices of `nodes`.
struct Taken {
    node: usize,
    nodes: Vec<usize>,
    best: Vec<u32>,
}

/// The most entries of all tables.
const ENTRIES: usize = 3_000_000;

/// The least cost of a net and its choices, as if there were no limit; `None` where the tables are too large.
pub(crate) fn eliminate(net: &Net, clock: &mut Clock) -> Option<(f64, Vec<usize>)> {
    let order = order(net)?;
    let mut constant = net.constant;
    let mut factors: Vec<Vec<Factor>> = (0..net.cost.len()).map(|_| Vec::new()).collect();
    let mut rank = vec![usize::MAX; net.cost.len()];
    order.iter().enumerate().for_each(|(place, &node)| rank[node] = place);
    for edge in net.edges.iter().filter(|edge| edge.alive()) {
        let nodes = vec![edge.a, edge.b];
        factors[first(&nodes, &rank)?].push(Factor { nodes, table: edge.table.clone() });
    }
    let mut taken = Vec::with_capacity(order.len());
    for &node in &order {
        let bucket = std::mem::take(&mut factors[node]);
        let (factor, best) = Bucket::new(net, node, &bucket).minimise();
        clock.spend((factor.table.len() * net.choices(node) * (1 + bucket.len())) as u64);
        taken.push(Taken { node, nodes: factor.nodes.clone(), best });
        match first(&factor.nodes, &rank) {
            Some(next) => factors[next].push(factor),
            None => constant += factor.table[0],
        }
    }
    let mut choice = vec![0; net.cost.len()];
    for Taken { node, nodes, best } in taken.iter().rev() {
        let place = nodes.iter().fold(0, |place, &other| place * net.choices(other) + choice[other]);
        choice[*node] = best[place] as usize;
    }
    Some((constant, choice))
}

/// The node that is eliminated first.
fn first(nodes: &[usize], rank: &[usize]) -> Option<usize> {
    nodes.iter().copied().min_by_key(|&node| rank[node])
}

/// Nodes, each the one whose elimination makes the smallest table. `None` where the tables sum up to too many entries.
fn order(net: &Net) -> Option<Vec<usize>> {
    let mut near: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); net.cost.len()];
    for edge in net.edges.iter().filter(|edge| edge.alive()) {
        near[edge.a].insert(edge.b);
        near[edge.b].insert(edge.a);
    }
    let mut waiting: BTreeSet<(usize, usize)> = net.nodes().map(|node| (entries(net, &near, node), node)).collect();
    let (mut order, mut sum) = (Vec::with_capacity(waiting.len()), 0usize);
    while let Some((size, node)) = waiting.pop_first() {
        sum = sum.saturating_add(size);
        if sum > ENTRIES {
            return None;
        }
        order.push(node);
        let around = std::mem::take(&mut near[node]);
        for &other in &around {
            waiting.remove(&(entries(net, &near, other), other));
            near[other].remove(&node);
            near[other].extend(around.iter().copied().filter(|&third| third != other));
            waiting.insert((entries(net, &near, other), other));
        }
    }
    Some(order)
}

/// Entries of the table of a node and its neighbours.
fn entries(net: &Net, near: &[BTreeSet<usize>], node: usize) -> usize {
    near[node].iter().fold(net.choices(node), |size, &other| size.saturating_mul(net.choices(other)))
}

/// Tables to sum and minimise when a node is eliminated.
struct Bucket<'b> {
    nodes: Vec<usize>,
    choices: Vec<usize>,
    own: &'b [f64],
    /// By depth, the tables whose last node among `nodes` is that one; before all, those of the node alone.
    parts: Vec<Vec<Part<'b>>>,
}

/// A table with its strides along the bucket's nodes and along the node itself.
struct Part<'b> {
    table: &'b [f64],
    strides: Vec<usize>,
    own: usize,
}

impl<'b> Bucket<'b> {
    fn new(net: &'b Net, node: usize, factors: &'b [Factor]) -> Bucket<'b> {
        let nodes: BTreeSet<usize> = factors.iter().flat_map(|factor| factor.nodes.iter().copied()).collect();
        let nodes: Vec<usize> = nodes.into_iter().filter(|&other| other != node).collect();
        let mut parts: Vec<Vec<Part<'b>>> = (0..=nodes.len()).map(|_| Vec::new()).collect();
        for factor in factors {
            let mut part = Part { table: &factor.table, strides: vec![0; nodes.len()], own: 0 };
            let (mut stride, mut depth) = (1, 0);
            for &other in factor.nodes.iter().rev() {
                match nodes.binary_search(&other) {
                    Ok(place) => {
                        part.strides[place] = stride;
                        depth = depth.max(place + 1);
                    }
                    Err(_) => part.own = stride,
                }
                stride *= net.choices(other);
            }
            parts[depth].push(part);
        }
        let choices = nodes.iter().map(|&other| net.choices(other)).collect();
        Bucket { nodes, choices, own: &net.cost[node], parts }
    }

    /// The least sum for all choices of the nodes around, and the choice that has it.
    fn minimise(self) -> (Factor, Vec<u32>) {
        let size = self.choices.iter().product();
        let mut result = (Vec::with_capacity(size), Vec::with_capacity(size));
        let mut sums = vec![self.own.to_vec(); self.nodes.len() + 1];
        for part in &self.parts[0] {
            sums[0].iter_mut().zip(part.table).for_each(|(sum, cost)| *sum += cost);
        }
        self.fill(&mut vec![0; self.nodes.len()], 0, &mut sums, &mut result);
        (Factor { nodes: self.nodes, table: result.0 }, result.1)
    }

    fn fill(&self, at: &mut [usize], depth: usize, sums: &mut [Vec<f64>], result: &mut (Vec<f64>, Vec<u32>)) {
        if depth == at.len() {
            let costs = sums[depth].iter().enumerate();
            let (best, cost) = costs.min_by(|one, other| one.1.total_cmp(other.1)).expect("a node has choices");
            result.0.push(*cost);
            result.1.push(best as u32);
            return;
        }
        for choice in 0..self.choices[depth] {
            at[depth] = choice;
            let (before, after) = sums.split_at_mut(depth + 1);
            after[0].copy_from_slice(&before[depth]);
            for part in &self.parts[depth + 1] {
                let place: usize = part.strides.iter().zip(&*at).take(depth + 1).map(|(stride, at)| stride * at).sum();
                let costs = part.table[place..].iter().step_by(part.own);
                after[0].iter_mut().zip(costs).for_each(|(sum, cost)| *sum += cost);
            }
            self.fill(at, depth + 1, sums, result);
        }
    }
}
