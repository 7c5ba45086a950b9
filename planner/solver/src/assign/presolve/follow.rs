//! Nodes whose choice is a function of others' choices.

use crate::assign::net::{Gone, Load, Net};

/// How much larger the tables around a node may become when it is contracted.
const GROWTH: usize = 20_000;

/// Contracts an edge of `node` on which one end's choice leaves the other no choice. Says whether `node` is gone.
pub(super) fn contract(net: &mut Net, node: usize) -> bool {
    for edge in net.near[node].clone() {
        if !net.edges[edge].alive() {
            continue;
        }
        let other = net.edges[edge].other(node);
        let (fewer, more) = if net.near[node].len() <= net.near[other].len() { (node, other) } else { (other, node) };
        for (follower, leader) in [(fewer, more), (more, fewer)] {
            if let Some(choice) = function(net, edge, leader, follower).filter(|_| grows_little(net, follower, leader))
            {
                replace(net, edge, follower, leader, &choice);
                if follower == node {
                    return true;
                }
                break;
            }
        }
    }
    false
}

/// The only choice of `follower` with each of `leader`, if there is one with each.
fn function(net: &Net, edge: usize, leader: usize, follower: usize) -> Option<Vec<usize>> {
    let only = (0..net.choices(leader)).map(|i| {
        let mut fitting = (0..net.choices(follower)).filter(|&j| net.pair(edge, leader, i, j).is_finite());
        fitting.next().filter(|_| fitting.next().is_none())
    });
    only.collect()
}

fn grows_little(net: &Net, follower: usize, leader: usize) -> bool {
    let columns: usize = net.near[follower].iter().map(|&edge| net.choices(net.edges[edge].other(follower))).sum();
    let (from, to) = (net.choices(follower), net.choices(leader));
    columns * to.saturating_sub(from) <= GROWTH
}

/// Lets `leader` stand for `follower`.
fn replace(net: &mut Net, edge: usize, follower: usize, leader: usize, choice: &[usize]) {
    for (i, &j) in choice.iter().enumerate() {
        net.cost[leader][i] += net.cost[follower][j] + net.pair(edge, leader, i, j);
    }
    net.cut(edge);
    for load in std::mem::take(&mut net.loads[follower]) {
        let amount = choice.iter().map(|&j| load.amount[j]).collect();
        net.loads[leader].push(Load { amount, ..load });
    }
    for edge in net.near[follower].clone() {
        let other = net.edges[edge].other(follower);
        let wide = net.choices(other);
        let rows = net.rows_of(edge, follower);
        let table = choice.iter().flat_map(|&j| rows[j * wide..][..wide].iter().copied()).collect();
        net.join(leader, other, table);
    }
    let mut whole = vec![0; net.kept[leader].last().map_or(0, |&last| last as usize + 1)];
    for (&i, &j) in net.kept[leader].iter().zip(choice) {
        whole[i as usize] = net.kept[follower][j];
    }
    net.trail.push(Gone::Follows { node: follower, of: leader, choice: whole });
    net.touched[leader] = true;
    net.drop_node(follower);
}

/// Takes away a node of two neighbours that uses nothing: for each pair of theirs it has a best choice.
pub(super) fn between(net: &mut Net, node: usize) {
    let [first, second] = net.near[node][..] else { return };
    let (a, b) = (net.edges[first].other(node), net.edges[second].other(node));
    let (high, wide) = (net.choices(a), net.choices(b));
    let whole = net.kept[b].last().map_or(0, |&last| last as usize + 1);
    let mut choice = vec![0; net.kept[a].last().map_or(0, |&last| last as usize + 1) * whole];
    let mut table = Vec::with_capacity(high * wide);
    for i in 0..high {
        for j in 0..wide {
            let (best, cost) = (0..net.choices(node))
                .map(|k| (k, net.cost[node][k] + net.pair(first, node, k, i) + net.pair(second, node, k, j)))
                .min_by(|one, other| one.1.total_cmp(&other.1))
                .expect("a node has choices");
            table.push(cost);
            choice[net.kept[a][i] as usize * whole + net.kept[b][j] as usize] = net.kept[node][best];
        }
    }
    net.trail.push(Gone::Between { node, a, b, wide: whole, choice });
    net.drop_node(node);
    net.join(a, b, table);
}
