//! Random problems.

use crate::draw::Draw;
use crate::reference::{Load, Pair, Stated};

/// Shape of random problems.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Edges beside those of a tree, by node.
    pub(crate) edges: f64,
    /// Share of pairs that are forbidden.
    pub(crate) forbidden: f64,
    /// True if there is a limit.
    pub(crate) limited: bool,
    /// Loads of a node at most.
    pub(crate) loads: u64,
}

impl Draw {
    /// A cost: often a small whole number, so that there are ties, else a multiple of 1/8 of either sign.
    fn cost(&mut self, forbidden: f64) -> f64 {
        if self.chance(forbidden) {
            f64::INFINITY
        } else if self.chance(0.5) {
            self.below(4) as f64
        } else {
            self.below(800) as f64 / 8.0 - 20.0
        }
    }

    /// A problem of up to 7 nodes with up to 4 choices, small enough to try everything.
    pub(crate) fn problem(&mut self, shape: Shape) -> Stated {
        let nodes = 2 + self.below(6) as usize;
        let limit = shape.limited.then(|| 8 + self.below(25));
        self.sized(shape, nodes, limit)
    }

    /// A problem of `nodes` nodes, whose limit is above what their least amounts use.
    pub(crate) fn larger(&mut self, shape: Shape, nodes: usize) -> Stated {
        let stated = self.sized(shape, nodes, None);
        let mut used = vec![0; 2 * nodes + 8];
        for load in &stated.loads {
            let least = load.amounts.iter().min().copied().unwrap_or(0);
            used[load.lo as usize..load.hi as usize].iter_mut().for_each(|used| *used += least);
        }
        let most = used.into_iter().max().unwrap_or(0);
        Stated { limit: shape.limited.then_some(most + most / 4 + 10), ..stated }
    }

    fn sized(&mut self, shape: Shape, nodes: usize, limit: Option<u64>) -> Stated {
        let mut costs: Vec<Vec<f64>> = Vec::new();
        for _ in 0..nodes {
            let choices = 1 + self.below(4);
            costs.push((0..choices).map(|_| self.cost(shape.forbidden / 4.0)).collect());
        }
        let mut ends: Vec<(usize, usize)> = (1..nodes).map(|node| (self.below(node as u64) as usize, node)).collect();
        for _ in 0..(shape.edges * nodes as f64) as usize {
            let (a, b) = (self.below(nodes as u64) as usize, self.below(nodes as u64) as usize);
            if a != b {
                ends.push((a, b));
            }
        }
        let mut pairs = Vec::new();
        for (a, b) in ends {
            let table = (0..costs[a].len() * costs[b].len()).map(|_| self.cost(shape.forbidden)).collect();
            pairs.push(Pair { a, b, table });
        }
        let mut loads = Vec::new();
        for (node, costs) in costs.iter().enumerate() {
            for _ in 0..self.below(shape.loads + 1) {
                let (lo, long) = (self.below(2 * nodes as u64) as u32, self.below(8) as u32);
                let amounts = costs.iter().map(|_| self.below(20)).collect();
                loads.push(Load { node, lo, hi: lo + long, amounts });
            }
        }
        Stated { costs, pairs, loads, limit }
    }

    /// Three rows of so many columns of nodes with three choices, an edge between neighbours, and the least cost.
    pub(crate) fn grid(&mut self, columns: usize) -> (Stated, f64) {
        const STATES: usize = 27;
        let digit = |state: usize, row: usize| state / [1, 3, 9][row] % 3;
        let mut stated = Stated { costs: Vec::new(), pairs: Vec::new(), loads: Vec::new(), limit: None };
        let mut least = vec![0.0; STATES];
        for column in 0..columns {
            let table = |draw: &mut Draw| (0..9).map(|_| draw.cost(0.0)).collect::<Vec<f64>>();
            let [costs, down, across] = [(); 3].map(|()| [(); 3].map(|()| table(self)));
            for (row, costs) in costs.iter().enumerate() {
                let node = stated.costs.len();
                stated.costs.push(costs[..3].to_vec());
                if row > 0 {
                    stated.pairs.push(Pair { a: node - 1, b: node, table: down[row].clone() });
                }
                if column > 0 {
                    stated.pairs.push(Pair { a: node - 3, b: node, table: across[row].clone() });
                }
            }
            let own = |state: usize| -> f64 {
                let nodes = (0..3).map(|row| costs[row][digit(state, row)]);
                let pairs = (1..3).map(|row| down[row][3 * digit(state, row - 1) + digit(state, row)]);
                nodes.chain(pairs).sum()
            };
            let step = |from: usize, to: usize| -> f64 {
                let pairs = (0..3).map(|row| across[row][3 * digit(from, row) + digit(to, row)]);
                if column > 0 { pairs.sum() } else { 0.0 }
            };
            let best = |to: usize| (0..STATES).map(|from| least[from] + step(from, to)).fold(f64::INFINITY, f64::min);
            least = (0..STATES).map(|to| own(to) + best(to)).collect();
        }
        (stated, least.into_iter().fold(f64::INFINITY, f64::min))
    }
}
