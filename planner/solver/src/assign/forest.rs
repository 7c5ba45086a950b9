//! Nodes that form a forest take their best choices together while all others retain theirs (Hamze and de Freitas 2004): exact, by
//! dynamic programming along its edges.

use super::net::Net;
use super::random::Random;

/// A random forest of a net's nodes: no two of them are joined except by its own edges.
pub(crate) struct Forest {
    /// Nodes, each after its parent.
    order: Vec<Member>,
    /// Place of a node in `order`, counted from 1; 0 for others.
    place: Vec<u32>,
}

/// A node of a forest, and the edge that joins it to its parent.
struct Member {
    node: usize,
    up: Option<usize>,
}

impl Forest {
    /// Grows trees from the nodes in random order, until every other node is next to at least two nodes of the forest.
    pub(crate) fn grow(net: &Net, nodes: &[usize], random: &mut Random) -> Forest {
        let mut forest = Forest { order: Vec::new(), place: vec![0; net.cost.len()] };
        let mut touches = vec![0u32; net.cost.len()];
        let mut rim: Vec<(usize, Option<usize>)> = Vec::new();
        let mut roots = nodes.to_vec();
        while !roots.is_empty() {
            let root = roots.swap_remove(random.below(roots.len()));
            if forest.place[root] == 0 && touches[root] == 0 {
                rim.push((root, None));
            }
            while !rim.is_empty() {
                let (node, up) = rim.swap_remove(random.below(rim.len()));
                if forest.place[node] > 0 || touches[node] > u32::from(up.is_some()) {
                    continue;
                }
                forest.order.push(Member { node, up });
                forest.place[node] = forest.order.len() as u32;
                for &edge in &net.near[node] {
                    let other = net.edges[edge].other(node);
                    touches[other] += 1;
                    if forest.place[other] == 0 && touches[other] == 1 {
                        rim.push((other, Some(edge)));
                    }
                }
            }
        }
        forest
    }

    /// The nodes of the forest.
    #[cfg(test)]
    pub(crate) fn nodes(&self) -> Vec<usize> {
        self.order.iter().map(|member| member.node).collect()
    }

    /// Gives the forest's nodes the choices of least `cost`, with that of their edges. Returns the number of table entries read.
    pub(crate) fn choose(&self, net: &Net, cost: &[Vec<f64>], choice: &mut [usize]) -> u64 {
        let mut sums: Vec<Vec<f64>> = self.order.iter().map(|member| cost[member.node].clone()).collect();
        let mut best: Vec<Vec<u32>> = vec![Vec::new(); self.order.len()];
        let mut steps = 0;
        for (at, member) in self.order.iter().enumerate().rev() {
            let mut sum = std::mem::take(&mut sums[at]);
            for &number in &net.near[member.node] {
                let other = net.edges[number].other(member.node);
                if self.place[other] == 0 {
                    add_row(net, number, member.node, choice[other], &mut sum);
                    steps += 20 + sum.len() as u64;
                }
            }
            if let Some(up) = member.up {
                let parent = self.place[net.edges[up].other(member.node)] as usize - 1;
                let (least, places) = message(net, up, member.node, &sum);
                steps += 20 + net.edges[up].table.len() as u64;
                sums[parent].iter_mut().zip(least).for_each(|(sum, least)| *sum += least);
                best[at] = places;
            } else {
                best[at] = vec![cheapest(&sum)];
            }
        }
        for (member, best) in self.order.iter().zip(best) {
            let above = member.up.map_or(0, |up| choice[net.edges[up].other(member.node)]);
            choice[member.node] = best[above] as usize;
        }
        steps
    }
}

/// Adds the costs of a node's choices with one of a neighbour.
fn add_row(net: &Net, number: usize, node: usize, other: usize, sum: &mut [f64]) {
    let edge = &net.edges[number];
    let wide = net.choices(edge.b);
    if edge.a == node {
        sum.iter_mut().zip(edge.table[other..].iter().step_by(wide)).for_each(|(sum, cost)| *sum += cost);
    } else {
        sum.iter_mut().zip(&edge.table[other * wide..][..wide]).for_each(|(sum, cost)| *sum += cost);
    }
}

/// The least of a node's sums with an edge's costs, and the choice that has it, for each choice of the other end.
fn message(net: &Net, number: usize, node: usize, sum: &[f64]) -> (Vec<f64>, Vec<u32>) {
    let edge = &net.edges[number];
    let wide = net.choices(edge.b);
    if edge.a != node {
        let rows = edge.table.chunks_exact(wide).map(|row| {
            let mut least = (f64::INFINITY, 0);
            for (j, (cost, sum)) in row.iter().zip(sum).enumerate() {
                if cost + sum < least.0 {
                    least = (cost + sum, j as u32);
                }
            }
            least
        });
        return rows.unzip();
    }
    let mut least = (vec![f64::INFINITY; wide], vec![0; wide]);
    for (i, (row, sum)) in edge.table.chunks_exact(wide).zip(sum).enumerate() {
        for ((least, place), cost) in least.0.iter_mut().zip(&mut least.1).zip(row) {
            if cost + sum < *least {
                (*least, *place) = (cost + sum, i as u32);
            }
        }
    }
    least
}

fn cheapest(costs: &[f64]) -> u32 {
    let places = costs.iter().enumerate();
    places.min_by(|one, other| one.1.total_cmp(other.1)).map_or(0, |(place, _)| place as u32)
}
