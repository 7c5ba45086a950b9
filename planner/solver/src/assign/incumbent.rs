//! The assignment that a search improves, with the memory that it leaves at every time. Changes and small nets around some nodes
//! take time by their own size, not by the net's.

use super::dual::prefix;
use super::net::{Edge, Load, Net};
use super::shared::Best;
use super::slack::Slack;

/// An assignment of a net within the limit.
pub(crate) struct Incumbent<'n> {
    pub(crate) net: &'n Net,
    pub(crate) choice: Vec<usize>,
    pub(crate) cost: f64,
    slack: Slack,
    /// Sums of the net's prices of all times before each.
    prices: Vec<f64>,
    /// Place of a node among those of a change or of a part, counted from 1; 0 for all others.
    place: Vec<usize>,
}

impl<'n> Incumbent<'n> {
    /// Begins with an assignment.
    pub(crate) fn new(net: &'n Net, best: Best) -> Incumbent<'n> {
        let slack = Slack::new(&net.left(&best.choice));
        let place = vec![0; net.cost.len()];
        Incumbent { net, choice: best.choice, cost: best.cost, slack, prices: prefix(&net.price), place }
    }

    /// Takes the choices of another assignment.
    pub(crate) fn adopt(&mut self, best: &Best) {
        for node in self.net.nodes() {
            if self.choice[node] != best.choice[node] {
                self.set(node, best.choice[node]);
            }
        }
        self.cost = best.cost;
    }

    /// Makes changes if they cost less by more than `gain`, and stay within the limit. Returns whether they do.
    pub(crate) fn change(&mut self, changes: &[(usize, usize)], gain: f64) -> bool {
        let nodes: Vec<usize> = changes.iter().map(|change| change.0).collect();
        let before: Vec<usize> = nodes.iter().map(|&node| self.choice[node]).collect();
        let cost = self.cost_around(&nodes);
        changes.iter().for_each(|&(node, choice)| self.set(node, choice));
        let more = self.cost_around(&nodes) - cost;
        let is_better = more < -gain && self.slack.least_of_all() >= 0;
        if is_better {
            self.cost += more;
        } else {
            nodes.iter().zip(before).for_each(|(&node, choice)| self.set(node, choice));
        }
        is_better
    }

    fn set(&mut self, node: usize, choice: usize) {
        for load in &self.net.loads[node] {
            let more = load.amount[choice] - load.amount[self.choice[node]];
            if more != 0 {
                self.slack.add(load.lo, load.hi, -more);
            }
        }
        self.choice[node] = choice;
    }

    /// The cost of some nodes and of all their edges.
    fn cost_around(&mut self, nodes: &[usize]) -> f64 {
        let net = self.net;
        self.mark(nodes, true);
        let mut sum = 0.0;
        for &node in nodes {
            sum += net.cost[node][self.choice[node]];
            for &edge in &net.near[node] {
                let other = net.edges[edge].other(node);
                if self.place[other] == 0 || self.place[node] < self.place[other] {
                    sum += net.pair(edge, node, self.choice[node], self.choice[other]);
                }
            }
        }
        self.mark(nodes, false);
        sum
    }

    fn mark(&mut self, nodes: &[usize], on: bool) {
        nodes.iter().enumerate().for_each(|(place, &node)| self.place[node] = if on { place + 1 } else { 0 });
    }

    /// The net of some nodes while all others retain their choices. Its node `i` is `nodes[i]`; it costs what all nodes do.
    pub(crate) fn part(&mut self, nodes: &[usize]) -> Net {
        let net = self.net;
        let constant = self.cost - self.cost_around(nodes);
        let mut part = Net {
            cost: nodes.iter().map(|&node| net.cost[node].clone()).collect(),
            loads: vec![Vec::new(); nodes.len()],
            near: vec![Vec::new(); nodes.len()],
            kept: nodes.iter().map(|&node| (0..net.choices(node) as u32).collect()).collect(),
            touched: vec![true; nodes.len()],
            constant,
            ..Net::default()
        };
        self.mark(nodes, true);
        for (place, &node) in nodes.iter().enumerate() {
            for &number in &net.near[node] {
                let edge = &net.edges[number];
                let other = edge.other(node);
                let wide = net.choices(edge.b);
                let chosen = self.choice[other];
                let cost = &mut part.cost[place];
                match (self.place[other], edge.a == node) {
                    (0, true) => add(cost, edge.table[chosen..].iter().step_by(wide)),
                    (0, false) => add(cost, edge.table[chosen * wide..][..wide].iter()),
                    (_, true) => {
                        let ends = [place, self.place[other] - 1];
                        ends.iter().for_each(|&end| part.near[end].push(part.edges.len()));
                        part.edges.push(Edge { a: ends[0], b: ends[1], table: edge.table.clone() });
                    }
                    (_, false) => {}
                }
            }
        }
        self.mark(nodes, false);
        self.limit(&mut part, nodes);
        part
    }

    /// Gives a part its loads, at times that are runs of the net's times.
    fn limit(&mut self, part: &mut Net, nodes: &[usize]) {
        let net = self.net;
        let loads = nodes.iter().flat_map(|&node| &net.loads[node]);
        let mut ends: Vec<usize> = loads.flat_map(|load| [load.lo, load.hi]).collect();
        ends.sort_unstable();
        ends.dedup();
        self.lend(nodes, 1);
        for run in ends.windows(2) {
            part.room.push(self.slack.least(run[0], run[1]));
            part.price.push(self.prices[run[1]] - self.prices[run[0]]);
        }
        self.lend(nodes, -1);
        part.spent = vec![0; part.room.len() + 1];
        for (own, &node) in part.loads.iter_mut().zip(nodes) {
            let compressed = net.loads[node].iter().map(|load| {
                let [lo, hi] = [load.lo, load.hi].map(|time| ends.partition_point(|&end| end < time));
                Load { lo, hi, amount: load.amount.clone() }
            });
            *own = compressed.collect();
        }
    }

    /// Gives back what the nodes use, or takes it again, by the sign.
    fn lend(&mut self, nodes: &[usize], sign: i64) {
        for &node in nodes {
            for load in &self.net.loads[node] {
                self.slack.add(load.lo, load.hi, sign * load.amount[self.choice[node]]);
            }
        }
    }
}

fn add<'t>(sum: &mut [f64], costs: impl Iterator<Item = &'t f64>) {
    sum.iter_mut().zip(costs).for_each(|(sum, cost)| *sum += cost);
}
