//! From an assignment to one that no change of a node, or of two nodes that an edge joins, makes better.

use std::collections::VecDeque;

use super::clock::Clock;
use super::incumbent::Incumbent;
use super::net::Net;

/// Relative gain below which a change is rounding.
const ROUNDING: f64 = 1e-9;

/// Betters an assignment by the best change along each edge, as long as there is any around an edge that changed.
pub(crate) fn polish(best: &mut Incumbent<'_>, clock: &mut Clock) {
    let net = best.net;
    let gain = ROUNDING * best.cost.abs();
    let mut waits: Vec<bool> = net.edges.iter().map(|edge| edge.alive()).collect();
    let mut queue: VecDeque<usize> = (0..waits.len()).filter(|&edge| waits[edge]).collect();
    while let Some(number) = queue.pop_front() {
        waits[number] = false;
        let edge = &net.edges[number];
        let [rows, columns] = [edge.a, edge.b].map(|node| alone(net, node, number, &best.choice));
        let wide = columns.len();
        let (row, column) = (best.choice[edge.a], best.choice[edge.b]);
        let now = rows[row] + columns[column] + edge.table[row * wide + column];
        let costs = rows.iter().flat_map(|row| columns.iter().map(move |column| row + column));
        let pairs = costs.zip(&edge.table).map(|(alone, pair)| alone + pair).enumerate();
        let pairs = pairs.map(|(place, cost)| (cost, place));
        let mut better: Vec<(f64, usize)> = pairs.filter(|pair| pair.0 < now - gain).collect();
        better.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let degrees = net.near[edge.a].len() + net.near[edge.b].len();
        clock.spend(100 + 20 * degrees as u64 + 2 * edge.table.len() as u64);
        let mut better = better.iter();
        if better.any(|&(_, place)| best.change(&[(edge.a, place / wide), (edge.b, place % wide)], gain)) {
            for &near in net.near[edge.a].iter().chain(&net.near[edge.b]) {
                if !std::mem::replace(&mut waits[near], true) {
                    queue.push_back(near);
                }
            }
        }
        if clock.over() {
            return;
        }
    }
}

/// Cost of each choice of a node with all its edges but one.
fn alone(net: &Net, node: usize, without: usize, choice: &[usize]) -> Vec<f64> {
    let mut cost = net.cost[node].clone();
    for &number in net.near[node].iter().filter(|&&number| number != without) {
        let other = choice[net.edges[number].other(node)];
        cost.iter_mut().enumerate().for_each(|(i, cost)| *cost += net.pair(number, node, i, other));
    }
    cost
}
