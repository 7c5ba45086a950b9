//! Choices that another one of the same node is never worse than.

use crate::assign::clock::Clock;
use crate::assign::net::{Infeasible, Net};

/// The most steps that a node is worth.
const EFFORT: usize = 30_000_000;

/// Returns whether `better` uses no more than `worse` at any time.
fn lighter(net: &Net, node: usize, better: usize, worse: usize) -> bool {
    net.loads[node].iter().all(|load| load.amount[better] <= load.amount[worse])
}

/// For a leaf, forbids the choices that are dominated under each choice of its neighbour.
pub(super) fn given_neighbour(net: &mut Net, leaf: usize) {
    let edge = net.near[leaf][0];
    let other = net.edges[edge].other(leaf);
    let (choices, others) = (net.choices(leaf), net.choices(other));
    let mut rows = net.rows_of(edge, other);
    let mut changed = false;
    for row in rows.chunks_mut(choices) {
        let total: Vec<f64> = row.iter().zip(&net.cost[leaf]).map(|(pair, cost)| pair + cost).collect();
        for j in 0..choices {
            let beaten = (0..choices).any(|better| {
                row[better].is_finite() && (total[better], better) < (total[j], j) && lighter(net, leaf, better, j)
            });
            if row[j].is_finite() && beaten {
                row[j] = f64::INFINITY;
                changed = true;
            }
        }
    }
    if changed {
        let turned = net.edges[edge].a != other;
        net.edges[edge].table = if turned { transposed(&rows, others, choices) } else { rows };
        net.touched[other] = true;
    }
}

fn transposed(table: &[f64], high: usize, wide: usize) -> Vec<f64> {
    (0..wide).flat_map(|j| (0..high).map(move |i| table[i * wide + j])).collect()
}

/// Drops choices for which another one is no worse whatever the neighbours choose (dead-end elimination, Goldstein 1994).
pub(super) fn anywhere(net: &mut Net, node: usize, clock: &mut Clock) -> Result<(), Infeasible> {
    let choices = net.choices(node);
    let columns: usize = net.near[node].iter().map(|&edge| net.choices(net.edges[edge].other(node))).sum();
    if choices * choices * columns > EFFORT {
        return Ok(());
    }
    let rows: Vec<(usize, Vec<f64>)> = net.near[node]
        .iter()
        .map(|&edge| (net.choices(net.edges[edge].other(node)), net.rows_of(edge, node)))
        .collect();
    let mut keep = vec![true; choices];
    for better in 0..choices {
        for worse in 0..choices {
            let both = better != worse && keep[better] && keep[worse];
            if both && lighter(net, node, better, worse) {
                keep[worse] = !never_worse(net, node, &rows, better, worse);
                clock.spend(columns as u64 / 4);
            }
        }
    }
    net.restrict(node, &keep).map(|_| ())
}

fn never_worse(net: &Net, node: usize, rows: &[(usize, Vec<f64>)], better: usize, worse: usize) -> bool {
    let mut most = net.cost[node][better] - net.cost[node][worse];
    for (wide, table) in rows {
        let pairs = table[better * wide..][..*wide].iter().zip(&table[worse * wide..][..*wide]);
        let more = pairs.filter(|(_, worse)| worse.is_finite()).map(|(better, worse)| better - worse);
        most += more.fold(f64::NEG_INFINITY, f64::max);
        if most == f64::INFINITY {
            return false;
        }
    }
    most <= 0.0
}
