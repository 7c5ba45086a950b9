//! The statement of a problem and of an answer.

use std::ops::Range;
use std::time::Duration;

use crate::Status;

/// A node of an [`Assignment`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Node(pub(crate) u32);

impl Node {
    /// The node's place in [`Solution::choice`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A problem: `min Σ cost[v][x_v] + Σ table[a,b][x_a, x_b]` subject to `Σ amounts[v][x_v] <= limit` over the loads that
/// are live, at every time. Costs are in any unit, of any sign; an infinite one forbids.
#[derive(Clone, Debug, Default)]
pub struct Assignment {
    pub(crate) costs: Vec<Vec<f64>>,
    pub(crate) loads: Vec<Load>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) limit: Option<u64>,
}

/// Use of a node's choices during a half-open range of times.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) node: usize,
    pub(crate) when: Range<u32>,
    pub(crate) amounts: Vec<u64>,
}

/// Costs of pairs of choices, row by row of `a`'s choices.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) table: Vec<f64>,
}

/// How long to search for a better answer or a better bound.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Limit on steps of the search, of one to three nanoseconds each; the same on every machine. `None`: until a proof.
    pub work: Option<u64>,
    /// Time on the clock; answers then depend on the machine.
    pub time: Option<Duration>,
    /// Relative distance between answer and bound that is good enough.
    pub gap: f64,
    /// Threads that search where there is a time; work is counted on one.
    pub threads: usize,
}

impl Default for Budget {
    /// A thousand million steps (a few seconds), one thread, to the optimum.
    fn default() -> Budget {
        Budget { work: Some(1_000_000_000), time: None, gap: 0.0, threads: 1 }
    }
}

/// Result of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct Solution {
    /// The choice of each node; empty unless the status is Optimal or Feasible.
    pub choice: Vec<usize>,
    /// The sum of its costs; infinite without one.
    pub cost: f64,
    /// No assignment within the limit costs less.
    pub bound: f64,
    /// The status of the result.
    pub status: Status,
}

impl Solution {
    /// How far the cost may be above the least one, relative to the cost: 0 when it is proved.
    pub fn gap(&self) -> f64 {
        if self.status == Status::Optimal {
            return 0.0;
        }
        (self.cost - self.bound) / self.cost.abs().max(f64::MIN_POSITIVE)
    }
}

impl Assignment {
    /// A problem without nodes, edges and limit.
    pub fn new() -> Assignment {
        Assignment::default()
    }

    /// A node with a choice for each of `costs`.
    ///
    /// # Panics
    ///
    /// Without a choice, or when a cost is not a number or minus infinity.
    pub fn node(&mut self, costs: Vec<f64>) -> Node {
        assert!(!costs.is_empty(), "a node has at least one choice");
        check(&costs);
        self.costs.push(costs);
        Node(u32::try_from(self.costs.len() - 1).expect("fewer nodes than 2^32"))
    }

    /// Adds the use of each choice of a node at the times `when`; a node may have several loads, or none.
    ///
    /// # Panics
    ///
    /// If the numbers of amounts and choices differ.
    pub fn load(&mut self, node: Node, when: Range<u32>, amounts: Vec<u64>) {
        assert_eq!(amounts.len(), self.costs[node.index()].len(), "one amount for each choice");
        if !when.is_empty() {
            self.loads.push(Load { node: node.index(), when, amounts });
        }
    }

    /// The cost `table[i * n + j]` of choice `i` of `a` with choice `j` of `b`, which has `n`. Two nodes may have several.
    ///
    /// # Panics
    ///
    /// When the table's size is not that of all pairs, `a` is `b`, or a cost is not a number or minus infinity.
    pub fn edge(&mut self, a: Node, b: Node, table: Vec<f64>) {
        assert_ne!(a, b, "an edge joins two nodes");
        assert_eq!(table.len(), self.choices(a) * self.choices(b), "one cost for each pair of choices");
        check(&table);
        self.edges.push(Edge { a: a.index(), b: b.index(), table });
    }

    /// The most that live loads may use at any time. Without a call there is no limit.
    pub fn limit(&mut self, most: u64) {
        self.limit = Some(most);
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.costs.len()
    }

    /// The number of choices of a node.
    pub fn choices(&self, node: Node) -> usize {
        self.costs[node.index()].len()
    }

    /// The cost of an assignment, infinite where it takes what is forbidden. Does not look at the limit.
    pub fn cost(&self, choice: &[usize]) -> f64 {
        let nodes: f64 = self.costs.iter().zip(choice).map(|(costs, &i)| costs[i]).sum();
        let pairs = self.edges.iter().map(|edge| {
            let wide = self.costs[edge.b].len();
            edge.table[choice[edge.a] * wide + choice[edge.b]]
        });
        nodes + pairs.sum::<f64>()
    }

    /// The most that an assignment uses at any time.
    pub fn peak(&self, choice: &[usize]) -> u64 {
        let ends = self.loads.iter().map(|load| (load.when.end, -i128::from(load.amounts[choice[load.node]])));
        let starts = self.loads.iter().map(|load| (load.when.start, i128::from(load.amounts[choice[load.node]])));
        let mut events: Vec<(u32, i128)> = ends.chain(starts).collect();
        events.sort_unstable();
        let (mut now, mut most) = (0, 0);
        for (_, change) in events {
            now += change;
            most = most.max(now);
        }
        u64::try_from(most).unwrap_or(u64::MAX)
    }

    /// Returns whether an assignment takes nothing forbidden and stays within the limit.
    pub fn allows(&self, choice: &[usize]) -> bool {
        self.cost(choice).is_finite() && self.limit.is_none_or(|limit| self.peak(choice) <= limit)
    }
}

fn check(costs: &[f64]) {
    let is_sound = costs.iter().all(|&cost| !cost.is_nan() && cost != f64::NEG_INFINITY);
    assert!(is_sound, "a cost is a number, or infinite where it forbids");
}
