//! Generated problems with the traits of the contest's instances: ops that follow others, pairs that are forbidden, and use that is live
//! for a short while or until the backward. One assignment is drawn first and never forbidden; the limit is what it uses.

use std::ops::Range;

use meshwright_solver::assign::Assignment;

use crate::draw::Draw;

/// A problem and an assignment that it allows.
pub(crate) struct Planted {
    pub(crate) costs: Vec<Vec<f64>>,
    /// Two nodes, and the costs of their pairs of choices.
    pub(crate) pairs: Vec<(usize, usize, Vec<f64>)>,
    /// Times at which a node is live, and what its choices use then.
    pub(crate) loads: Vec<(Range<u32>, Vec<u64>)>,
    pub(crate) limit: u64,
    /// The assignment.
    pub(crate) choice: Vec<usize>,
    /// Halvings of what a node uses, by choice.
    halvings: Vec<Vec<u64>>,
}

/// Shares of nodes that follow another, of edges with forbidden pairs, and of their pairs that are forbidden.
const FOLLOWS: f64 = 0.6;
const FORBIDS: f64 = 0.5;
const FORBIDDEN: f64 = 0.4;

/// Share of nodes whose planted choice uses least.
const LIGHT: f64 = 0.95;

impl Planted {
    /// A problem of `nodes` nodes with at most `choices` choices.
    pub(crate) fn new(nodes: usize, choices: u64, seed: u64) -> Planted {
        let mut draw = Draw::new(seed);
        let mut planted = Planted {
            costs: Vec::new(),
            pairs: Vec::new(),
            loads: Vec::new(),
            limit: 0,
            choice: Vec::new(),
            halvings: Vec::new(),
        };
        for node in 0..nodes {
            if node > 0 && draw.chance(FOLLOWS) {
                planted.follower(&mut draw, nodes);
            } else {
                planted.free(&mut draw, nodes, choices);
            }
        }
        planted.limit = planted.problem().peak(&planted.choice);
        planted
    }

    /// The same for the solver.
    pub(crate) fn problem(&self) -> Assignment {
        let mut problem = Assignment::new();
        let nodes: Vec<_> = self.costs.iter().map(|costs| problem.node(costs.clone())).collect();
        for (a, b, table) in &self.pairs {
            problem.edge(nodes[*a], nodes[*b], table.clone());
        }
        for (&node, (when, amounts)) in nodes.iter().zip(&self.loads) {
            problem.load(node, when.clone(), amounts.clone());
        }
        problem.limit(self.limit);
        problem
    }

    /// A node whose choice is that of an earlier one, renamed.
    fn follower(&mut self, draw: &mut Draw, nodes: usize) {
        let node = self.costs.len();
        let leader = earlier(draw, node);
        let choices = self.costs[leader].len();
        let turn = draw.below(choices as u64) as usize;
        let follows = |i: usize| (i + turn) % choices;
        let cost = |place: usize| {
            if follows(place / choices) == place % choices { 0.0 } else { f64::INFINITY }
        };
        self.pairs.push((leader, node, (0..choices * choices).map(cost).collect()));
        let mut halvings = self.halvings[leader].clone();
        halvings.rotate_right(turn);
        self.add(draw, nodes, halvings, follows(self.choice[leader]));
    }

    /// A node of its own choice, with edges to some earlier ones.
    fn free(&mut self, draw: &mut Draw, nodes: usize, choices: u64) {
        let node = self.costs.len();
        let choices = 1 + draw.below(choices) as usize;
        let choice = draw.below(choices as u64) as usize;
        let halvings = (0..choices).map(|_| draw.below(4)).collect();
        self.add(draw, nodes, halvings, choice);
        if draw.chance(LIGHT) {
            let amounts = &self.loads[node].1;
            self.choice[node] = (0..choices).min_by_key(|&choice| amounts[choice]).unwrap_or(choice);
        }
        for _ in 0..draw.below(4).min(node as u64) {
            let other = earlier(draw, node);
            let forbidden = if draw.chance(FORBIDS) { FORBIDDEN } else { 0.0 };
            let planted = self.choice[other] * choices + self.choice[node];
            let mut cost = |place: usize| {
                let cost = if draw.chance(0.3) { 0.0 } else { draw.below(1 << 20) as f64 };
                if place != planted && draw.chance(forbidden) { f64::INFINITY } else { cost }
            };
            let table = (0..self.costs[other].len() * choices).map(&mut cost).collect();
            self.pairs.push((other, node, table));
        }
    }

    fn add(&mut self, draw: &mut Draw, nodes: usize, halvings: Vec<u64>, choice: usize) {
        let node = self.costs.len();
        let base = draw.below(1 << 16) << draw.below(12);
        let end = match draw.below(20) {
            0 => 2 * nodes - node,
            1..6 => node + 1 + draw.below(500) as usize,
            _ => node + 1 + draw.below(20) as usize,
        };
        let amounts = halvings.iter().map(|halvings| base >> halvings).collect();
        self.loads.push((node as u32..end as u32, amounts));
        self.costs.push(halvings.iter().map(|_| draw.below(1 << 20) as f64).collect());
        self.choice.push(choice);
        self.halvings.push(halvings);
    }
}

/// A node before `node`, mostly one of the last fifty.
fn earlier(draw: &mut Draw, node: usize) -> usize {
    let reach = if draw.chance(0.9) { node.min(50) } else { node };
    node - 1 - draw.below(reach as u64) as usize
}
