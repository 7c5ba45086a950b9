//! Reductions before any search: choices, nodes, edges and times that no best assignment needs.
//!
//! Each step leaves at least one optimum of the problem, and records in the trail how to restore the choices of removed nodes.

mod cover;
mod dominate;
mod fit;
mod follow;

pub(crate) use cover::cover;

use super::clock::Clock;
use super::net::{Gone, Infeasible, Net};

/// Shrinks a net as far as the steps reach, or the clock.
pub(crate) fn presolve(net: &mut Net, clock: &mut Clock) -> Result<(), Infeasible> {
    loop {
        fit::fit(net)?;
        clock.spend((net.cost.len() + net.room.len()) as u64);
        let nodes: Vec<usize> = net.nodes().filter(|&node| net.touched[node]).collect();
        if nodes.is_empty() {
            return Ok(());
        }
        for node in nodes {
            net.touched[node] = false;
            if !net.cost[node].is_empty() {
                reduce(net, node, clock)?;
            }
            if clock.over() {
                return Ok(());
            }
        }
    }
}

/// All reductions of one node.
fn reduce(net: &mut Net, node: usize, clock: &mut Clock) -> Result<(), Infeasible> {
    clock.spend(100 + net.near[node].iter().map(|&edge| 50 + 8 * net.edges[edge].table.len() as u64).sum::<u64>());
    supported(net, node)?;
    if net.choices(node) == 1 {
        fix(net, node);
        return Ok(());
    }
    fold_sums(net, node);
    if net.near[node].len() == 1 {
        dominate::given_neighbour(net, node);
    }
    if follow::contract(net, node) {
        return Ok(());
    }
    dominate::anywhere(net, node, clock)?;
    if net.choices(node) == 1 {
        fix(net, node);
    } else if net.near[node].len() == 2 && net.loads[node].is_empty() {
        follow::between(net, node);
    }
    Ok(())
}

/// Drops choices that cost infinitely much, or that some neighbour has no choice for (arc consistency).
fn supported(net: &mut Net, node: usize) -> Result<(), Infeasible> {
    let mut keep: Vec<bool> = net.cost[node].iter().map(|cost| cost.is_finite()).collect();
    for &edge in &net.near[node] {
        let others = net.choices(net.edges[edge].other(node));
        for (i, keep) in keep.iter_mut().enumerate() {
            *keep &= (0..others).any(|j| net.pair(edge, node, i, j).is_finite());
        }
    }
    net.restrict(node, &keep).map(|_| ())
}

/// Takes away a node that has one choice.
fn fix(net: &mut Net, node: usize) {
    net.constant += net.cost[node][0];
    for edge in net.near[node].clone() {
        let row = net.rows_of(edge, node);
        let other = net.edges[edge].other(node);
        for (cost, pair) in net.cost[other].iter_mut().zip(row) {
            *cost += pair;
        }
    }
    for load in std::mem::take(&mut net.loads[node]) {
        net.spent[load.lo] += load.amount[0];
        net.spent[load.hi] -= load.amount[0];
    }
    net.trail.push(Gone::Fixed { node, choice: net.kept[node][0] });
    net.drop_node(node);
}

/// Takes away edges whose table is a sum of a cost by row and a cost by column.
fn fold_sums(net: &mut Net, node: usize) {
    for edge in net.near[node].clone() {
        let other = net.edges[edge].other(node);
        let wide = net.choices(other);
        let table = net.rows_of(edge, node);
        if !is_sum(&table, wide) {
            continue;
        }
        for (cost, row) in net.cost[node].iter_mut().zip(table.chunks(wide)) {
            *cost += row[0];
        }
        for (cost, pair) in net.cost[other].iter_mut().zip(&table[..wide]) {
            *cost += pair - table[0];
        }
        net.cut(edge);
    }
}

/// Rounding in sums of a few doubles, relative to the largest.
const ROUNDING: f64 = 1e-14;

fn is_sum(table: &[f64], wide: usize) -> bool {
    let first = &table[..wide];
    let most = table.iter().fold(0.0, |most: f64, cost| most.max(cost.abs()));
    most.is_finite()
        && table.chunks(wide).all(|row| {
            row.iter().zip(first).all(|(cost, above)| (cost - row[0] - (above - first[0])).abs() <= ROUNDING * most)
        })
}
