//! The assignment problem as it grows: choices with costs, pairs with costs, and what is held when.

use std::collections::BTreeMap;
use std::ops::Range;

/// A node's place in [`Problem::costs`].
pub(crate) type Node = usize;

/// What choices hold over some ticks.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Whose choices.
    pub(crate) node: Node,
    /// From this tick to before that one.
    pub(crate) when: Range<u32>,
    /// Bytes, per choice.
    pub(crate) bytes: Vec<u64>,
}

/// `min` of the costs of nodes and pairs, with at most `limit` bytes held at every tick.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    /// Seconds, per node and choice.
    pub(crate) costs: Vec<Vec<f64>>,
    /// Seconds of pairs, `table[i * len(b) + j]`; infinite: forbidden.
    pub(crate) edges: BTreeMap<(Node, Node), Vec<f64>>,
    /// What is held.
    pub(crate) loads: Vec<Load>,
    /// Bytes of a device.
    pub(crate) limit: u64,
}

impl Problem {
    /// A node with these choices.
    pub(super) fn node(&mut self, costs: Vec<f64>) -> Node {
        self.costs.push(costs);
        self.costs.len() - 1
    }

    /// Adds to the costs of the pairs of two nodes, or, where they are one, to its own.
    pub(super) fn join(&mut self, a: Node, b: Node, mut cost: impl FnMut(usize, usize) -> f64) {
        if a == b {
            for (choice, own) in self.costs[a].iter_mut().enumerate() {
                *own += cost(choice, choice);
            }
            return;
        }
        let (low, high) = (a.min(b), a.max(b));
        let (rows, columns) = (self.costs[low].len(), self.costs[high].len());
        let table = self.edges.entry((low, high)).or_insert_with(|| vec![0.0; rows * columns]);
        for (at, pair) in table.iter_mut().enumerate() {
            let (i, j) = (at / columns, at % columns);
            *pair += if a < b { cost(i, j) } else { cost(j, i) };
        }
    }

    /// States what a node's choices hold.
    pub(super) fn hold(&mut self, node: Node, when: Range<u32>, bytes: Vec<u64>) {
        if bytes.iter().any(|&bytes| bytes > 0) {
            self.loads.push(Load { node, when, bytes });
        }
    }
}
