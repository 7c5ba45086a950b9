//! Assignment problem under construction: costs of choices and of pairs, and memory lifetimes.

use std::collections::BTreeMap;
use std::ops::Range;

/// Index of a node in [`Problem::costs`].
pub(crate) type Node = usize;

/// Memory of a node's choices over an interval of ticks.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Node whose choice determines the bytes.
    pub(crate) node: Node,
    /// Half-open interval of ticks.
    pub(crate) when: Range<u32>,
    /// Bytes, per choice.
    pub(crate) bytes: Vec<u64>,
}

/// Minimisation of the costs of nodes and pairs, with at most `limit` bytes live at every tick.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    /// Seconds, per node and choice.
    pub(crate) costs: Vec<Vec<f64>>,
    /// Seconds of pairs, `table[i * len(b) + j]`; an infinite cost forbids the pair.
    pub(crate) edges: BTreeMap<(Node, Node), Vec<f64>>,
    /// Memory lifetimes.
    pub(crate) loads: Vec<Load>,
    /// Memory budget of a device, in bytes.
    pub(crate) limit: u64,
}

impl Problem {
    /// Adds a node with these choice costs.
    pub(super) fn node(&mut self, costs: Vec<f64>) -> Node {
        self.costs.push(costs);
        self.costs.len() - 1
    }

    /// Adds to the pair costs of two nodes or, if both are one node, to its own costs.
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

    /// Adds the memory lifetime of a node's choices.
    pub(super) fn hold(&mut self, node: Node, when: Range<u32>, bytes: Vec<u64>) {
        if bytes.iter().any(|&bytes| bytes > 0) {
            self.loads.push(Load { node, when, bytes });
        }
    }
}
