//! A problem that can shrink: choices, nodes, edges and times go away, and what went can be put back into an answer.

use std::collections::BTreeMap;

use super::problem::Assignment;

/// A network of nodes, edges and loads on a compressed axis of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Net {
    /// Cost of each choice of a node; empty for a node that is gone.
    pub(crate) cost: Vec<Vec<f64>>,
    /// Use of a node's choices above the least of them.
    pub(crate) loads: Vec<Vec<Load>>,
    /// Edges of a node; those of a node that is gone are none.
    pub(crate) near: Vec<Vec<usize>>,
    /// Edges; a dead one has no table.
    pub(crate) edges: Vec<Edge>,
    /// The limit at each time, less the use that no choice can avoid.
    pub(crate) room: Vec<i64>,
    /// Lagrange multipliers of the limit: cost of a unit of use at each time, in bounds.
    pub(crate) price: Vec<f64>,
    /// Use to subtract from `room`, as changes along the times.
    pub(crate) spent: Vec<i64>,
    /// Cost that no choice can avoid.
    pub(crate) constant: f64,
    /// The choice of the problem for each choice that is left.
    pub(crate) kept: Vec<Vec<u32>>,
    /// How to find the choices of nodes that are gone, in the order in which they went.
    pub(crate) trail: Vec<Gone>,
    /// Nodes about which something changed.
    pub(crate) touched: Vec<bool>,
}

/// Use of a node's choices at times `lo..hi`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) lo: usize,
    pub(crate) hi: usize,
    pub(crate) amount: Vec<i64>,
}

impl Load {
    /// Use of the choice that uses most, over all of its times.
    pub(crate) fn greatest_use(&self) -> f64 {
        self.amount.iter().max().map_or(0.0, |&most| most as f64) * (self.hi - self.lo) as f64
    }
}

/// Costs of pairs of choices, row by row of `a`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edge {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) table: Vec<f64>,
}

/// Why a node is gone. Choices are those of the problem.
#[derive(Clone, Debug)]
pub(crate) enum Gone {
    /// One choice was left.
    Fixed { node: usize, choice: u32 },
    /// Its choice is a function of another node's.
    Follows { node: usize, of: usize, choice: Vec<u32> },
    /// Its choice is a function of two nodes' choices: `choice[i * wide + j]`.
    Between { node: usize, a: usize, b: usize, wide: usize, choice: Vec<u32> },
}

/// The largest limit that differs from no limit: sums of a million amounts stay within 63 bits up to a thousandth of it.
const LARGEST: u64 = 1 << 53;

/// There is no assignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Infeasible;

impl Edge {
    /// The other end.
    pub(crate) fn other(&self, node: usize) -> usize {
        self.a + self.b - node
    }

    /// Returns whether it is part of the net.
    pub(crate) fn alive(&self) -> bool {
        !self.table.is_empty()
    }
}

impl Net {
    /// The net of a problem, with times numbered without gaps.
    pub(crate) fn new(problem: &Assignment) -> Net {
        let nodes = problem.costs.len();
        let mut net = Net {
            cost: problem.costs.clone(),
            loads: vec![Vec::new(); nodes],
            near: vec![Vec::new(); nodes],
            kept: problem.costs.iter().map(|costs| (0..costs.len() as u32).collect()).collect(),
            touched: vec![true; nodes],
            spent: vec![0],
            ..Net::default()
        };
        for edge in &problem.edges {
            net.join(edge.a, edge.b, edge.table.clone());
        }
        if let Some(limit) = problem.limit {
            net.take_loads(problem, limit.min(LARGEST));
        }
        net
    }

    fn take_loads(&mut self, problem: &Assignment, limit: u64) {
        let ends = problem.loads.iter().flat_map(|load| [load.when.start, load.when.end]);
        let mut place: BTreeMap<u32, usize> = ends.map(|time| (time, 0)).collect();
        for (number, (_, index)) in place.iter_mut().enumerate() {
            *index = number;
        }
        self.room = vec![limit as i64; place.len().saturating_sub(1)];
        self.price = vec![0.0; self.room.len()];
        self.spent = vec![0; place.len().max(1)];
        for load in &problem.loads {
            let amount = load.amounts.iter().map(|&amount| amount.min(limit + 1) as i64).collect();
            let (lo, hi) = (place[&load.when.start], place[&load.when.end]);
            self.loads[load.node].push(Load { lo, hi, amount });
        }
    }

    /// Nodes that are left.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.cost.len()).filter(|&node| !self.cost[node].is_empty())
    }

    /// Entries of all tables, loads and times.
    pub(crate) fn entries(&self) -> usize {
        let pairs: usize = self.edges.iter().map(|edge| edge.table.len()).sum();
        let amounts: usize = self.loads.iter().flatten().map(|load| load.amount.len() + 6).sum();
        pairs + amounts + 16 * self.cost.len() + 3 * self.room.len()
    }

    /// Number of choices of a node.
    pub(crate) fn choices(&self, node: usize) -> usize {
        self.cost[node].len()
    }

    /// The cost of choice `i` of `node` with choice `j` of the other end of an edge.
    pub(crate) fn pair(&self, edge: usize, node: usize, i: usize, j: usize) -> f64 {
        let edge = &self.edges[edge];
        if edge.a == node {
            edge.table[i * self.cost[edge.b].len() + j]
        } else {
            edge.table[j * self.cost[edge.b].len() + i]
        }
    }

    /// An edge's table with the rows of `node` first.
    pub(crate) fn rows_of(&self, edge: usize, node: usize) -> Vec<f64> {
        let edge = &self.edges[edge];
        if edge.a == node {
            return edge.table.clone();
        }
        let (high, wide) = (self.choices(edge.a), self.choices(edge.b));
        (0..wide).flat_map(|j| (0..high).map(move |i| edge.table[i * wide + j])).collect()
    }

    /// Adds an edge, or adds to the one that is there.
    pub(crate) fn join(&mut self, a: usize, b: usize, table: Vec<f64>) {
        self.touched[a] = true;
        self.touched[b] = true;
        let fewer = if self.near[a].len() <= self.near[b].len() { a } else { b };
        let there = self.near[fewer].iter().copied().find(|&edge| self.edges[edge].other(fewer) == a + b - fewer);
        let Some(there) = there else {
            self.near[a].push(self.edges.len());
            self.near[b].push(self.edges.len());
            self.edges.push(Edge { a, b, table });
            return;
        };
        let (high, wide) = (self.choices(a), self.choices(b));
        let edge = &mut self.edges[there];
        for i in 0..high {
            for j in 0..wide {
                let place = if edge.a == a { i * wide + j } else { j * high + i };
                edge.table[place] += table[i * wide + j];
            }
        }
    }

    /// Takes an edge away.
    pub(crate) fn cut(&mut self, edge: usize) {
        let Edge { a, b, .. } = std::mem::take(&mut self.edges[edge]);
        self.touched[a] = true;
        self.touched[b] = true;
        self.near[a].retain(|&other| other != edge);
        self.near[b].retain(|&other| other != edge);
    }

    /// Takes a node and its edges away.
    pub(crate) fn drop_node(&mut self, node: usize) {
        for edge in std::mem::take(&mut self.near[node]) {
            let other = self.edges[edge].other(node);
            self.edges[edge] = Edge::default();
            self.near[other].retain(|&other| other != edge);
            self.touched[other] = true;
        }
        self.cost[node] = Vec::new();
        self.loads[node] = Vec::new();
    }

    /// Leaves a node only the choices that `keep` marks. Says whether any went.
    pub(crate) fn restrict(&mut self, node: usize, keep: &[bool]) -> Result<bool, Infeasible> {
        let left = keep.iter().filter(|&&keep| keep).count();
        if left == keep.len() {
            return Ok(false);
        }
        if left == 0 {
            return Err(Infeasible);
        }
        for &edge in &self.near[node] {
            let edge = &mut self.edges[edge];
            self.touched[edge.other(node)] = true;
            let wide = self.cost[edge.b].len();
            let mut place = 0..edge.table.len();
            let rows = edge.a == node;
            edge.table.retain(|_| {
                let place = place.next().expect("one place per cost");
                keep[if rows { place / wide } else { place % wide }]
            });
        }
        self.touched[node] = true;
        filter(&mut self.cost[node], keep);
        filter(&mut self.kept[node], keep);
        for load in &mut self.loads[node] {
            filter(&mut load.amount, keep);
        }
        Ok(true)
    }

    /// The net as a problem of its own, whose answers are choices of this net.
    pub(crate) fn rooted(mut self) -> Net {
        self.kept = self.cost.iter().map(|costs| (0..costs.len() as u32).collect()).collect();
        self.trail.clear();
        self
    }

    /// The cost of choices of the nodes that are left.
    pub(crate) fn cost_of(&self, choice: &[usize]) -> f64 {
        let nodes: f64 = self.nodes().map(|node| self.cost[node][choice[node]]).sum();
        let alive = self.edges.iter().filter(|edge| edge.alive());
        let pairs: f64 = alive.map(|edge| edge.table[choice[edge.a] * self.choices(edge.b) + choice[edge.b]]).sum();
        self.constant + nodes + pairs
    }

    /// Remaining limit at each time; negative if exceeded.
    pub(crate) fn left(&self, choice: &[usize]) -> Vec<i64> {
        let mut change = self.spent.clone();
        for node in self.nodes() {
            for load in &self.loads[node] {
                change[load.lo] += load.amount[choice[node]];
                change[load.hi] -= load.amount[choice[node]];
            }
        }
        self.less(&change)
    }

    /// The limit at each time less a use, which is stated as changes along the times.
    pub(crate) fn less(&self, change: &[i64]) -> Vec<i64> {
        let mut sum = 0;
        let left = self.room.iter().zip(change).map(|(room, change)| {
            sum += change;
            room - sum
        });
        left.collect()
    }

    /// Returns whether choices are within the limit at all times.
    pub(crate) fn fits(&self, choice: &[usize]) -> bool {
        self.left(choice).iter().all(|&left| left >= 0)
    }

    /// The choices of the problem's nodes, from those of the nodes that are left.
    pub(crate) fn restore(&self, choice: &[usize]) -> Vec<usize> {
        let mut whole = vec![u32::MAX; self.cost.len()];
        for node in self.nodes() {
            whole[node] = self.kept[node][choice[node]];
        }
        for gone in self.trail.iter().rev() {
            match gone {
                Gone::Fixed { node, choice } => whole[*node] = *choice,
                Gone::Follows { node, of, choice } => whole[*node] = choice[whole[*of] as usize],
                Gone::Between { node, a, b, wide, choice } => {
                    whole[*node] = choice[whole[*a] as usize * wide + whole[*b] as usize];
                }
            }
        }
        whole.into_iter().map(|choice| choice as usize).collect()
    }
}

fn filter<T>(values: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    values.retain(|_| *keep.next().expect("a mark for each value"));
}
