//! From an assignment to one that no change of a node, or of two nodes that an edge joins, makes better.

use super::clock::Clock;
use super::net::{Load, Net};
use super::shared::Best;

/// Betters an assignment by the best change along each edge, and of each node without one, as long as there is any.
pub(crate) fn polish(net: &Net, best: &mut Best, clock: &mut Clock) {
    let mut left = net.left(&best.choice);
    let least_gain = 1e-9 * best.cost.abs();
    loop {
        let before = best.cost;
        for (number, edge) in net.edges.iter().enumerate().filter(|(_, edge)| edge.alive()) {
            let own = [alone(net, edge.a, number, &best.choice), alone(net, edge.b, number, &best.choice)];
            let wide = own[1].len();
            let cost = |i: usize, j: usize| own[0][i] + own[1][j] + edge.table[i * wide + j];
            let now = cost(best.choice[edge.a], best.choice[edge.b]);
            let pairs = (0..edge.table.len()).map(|place| (cost(place / wide, place % wide), place));
            let mut better: Vec<(f64, usize)> = pairs.filter(|pair| pair.0 < now - least_gain).collect();
            better.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
            clock.spend(100 + 2 * edge.table.len() as u64);
            let fits = |&&(_, place): &&(f64, usize)| {
                change(net, &mut left, &best.choice, &[(edge.a, place / wide), (edge.b, place % wide)])
            };
            if let Some(&(cost, place)) = better.iter().find(fits) {
                (best.choice[edge.a], best.choice[edge.b]) = (place / wide, place % wide);
                best.cost += cost - now;
            }
        }
        if best.cost >= before || clock.over() {
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

/// Changes what is left at each time by new choices of some nodes, unless that is too much somewhere.
fn change(net: &Net, left: &mut [i64], choice: &[usize], changes: &[(usize, usize)]) -> bool {
    let more = |node: usize, new: usize, load: &Load| load.amount[new] - load.amount[choice[node]];
    let loads = || changes.iter().flat_map(|&(node, new)| net.loads[node].iter().map(move |load| (node, new, load)));
    let add = |left: &mut [i64], sign: i64| {
        for (node, new, load) in loads() {
            let more = sign * more(node, new, load);
            if more != 0 {
                left[load.lo..load.hi].iter_mut().for_each(|left| *left -= more);
            }
        }
    };
    add(left, 1);
    let overflows = |(node, new, load): (usize, usize, &Load)| {
        more(node, new, load) > 0 && left[load.lo..load.hi].iter().any(|&left| left < 0)
    };
    let fits = !loads().any(overflows);
    if !fits {
        add(left, -1);
    }
    fits
}
