//! From a bound to an assignment, and to the node on which to branch.

use super::dual::{Reduced, least};
use super::net::{Load, Net};

/// Chooses node after node by reduced costs, within the limit. `None` if a node is left without a choice.
pub(crate) fn decode(net: &Net, reduced: &Reduced) -> Option<Vec<usize>> {
    let mut left = net.room.clone();
    let mut choice = vec![usize::MAX; net.cost.len()];
    for node in order(net, reduced) {
        let mut cost = reduced.alone[node].clone();
        for &number in &net.near[node] {
            let edge = &net.edges[number];
            let (table, wide) = (&reduced.table[number], net.choices(edge.b));
            let other = choice[edge.other(node)];
            match (edge.a == node, other == usize::MAX) {
                (true, true) => add(&mut cost, least(table, wide).0),
                (false, true) => add(&mut cost, least(table, wide).1),
                (true, false) => add(&mut cost, table[other..].iter().step_by(wide).copied()),
                (false, false) => add(&mut cost, table[other * wide..][..wide].iter().copied()),
            }
        }
        let mut places: Vec<usize> = (0..cost.len()).filter(|&i| cost[i].is_finite()).collect();
        places.sort_by(|&one, &other| cost[one].total_cmp(&cost[other]));
        let chosen = places.into_iter().find(|&i| take(net, node, i, &mut left))?;
        choice[node] = chosen;
    }
    Some(choice)
}

fn add(sum: &mut [f64], costs: impl IntoIterator<Item = f64>) {
    sum.iter_mut().zip(costs).for_each(|(sum, cost)| *sum += cost);
}

/// Takes what a choice uses from what is left, if it is there.
fn take(net: &Net, node: usize, choice: usize, left: &mut [i64]) -> bool {
    for (number, load) in net.loads[node].iter().enumerate() {
        let amount = load.amount[choice];
        if amount == 0 {
            continue;
        }
        left[load.lo..load.hi].iter_mut().for_each(|left| *left -= amount);
        if left[load.lo..load.hi].iter().any(|&left| left < 0) {
            for load in &net.loads[node][..=number] {
                left[load.lo..load.hi].iter_mut().for_each(|left| *left += load.amount[choice]);
            }
            return false;
        }
    }
    true
}

/// Nodes, those first whose best choice is best by far.
fn order(net: &Net, reduced: &Reduced) -> Vec<usize> {
    let leads = net.nodes().map(|node| {
        let mut above = reduced.above[node].clone();
        above.sort_by(f64::total_cmp);
        (above[1] - above[0], node)
    });
    let mut nodes: Vec<(f64, usize)> = leads.collect();
    nodes.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    nodes.into_iter().map(|(_, node)| node).collect()
}

/// The node on whose choice the bound is least at one with itself, and its cheapest choice.
pub(crate) fn widest(net: &Net, reduced: &Reduced) -> (usize, usize) {
    let mut clash = vec![0.0; net.cost.len()];
    for edge in net.edges.iter().filter(|edge| edge.alive()) {
        let wide = net.choices(edge.b);
        let all = edge.table.iter().copied().fold(f64::INFINITY, f64::min);
        let over = edge.table[cheapest(reduced, edge.a) * wide + cheapest(reduced, edge.b)] - all;
        let over = if over.is_finite() { over } else { net.constant.abs().max(all.abs()) };
        clash[edge.a] += over;
        clash[edge.b] += over;
    }
    let node = net
        .nodes()
        .max_by(|&one, &other| {
            let by_clash = clash[one].total_cmp(&clash[other]);
            by_clash.then_with(|| greatest_use(net, one).total_cmp(&greatest_use(net, other)))
        })
        .expect("a net that is searched has nodes");
    (node, cheapest(reduced, node))
}

/// The choice of a node that the bound favours.
fn cheapest(reduced: &Reduced, node: usize) -> usize {
    let costs = reduced.above[node].iter().enumerate();
    costs.min_by(|one, other| one.1.total_cmp(other.1)).map_or(0, |(choice, _)| choice)
}

/// The greatest use of a node.
fn greatest_use(net: &Net, node: usize) -> f64 {
    net.loads[node].iter().map(Load::greatest_use).sum()
}
