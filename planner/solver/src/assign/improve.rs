//! Large-neighbourhood search (Shaw 1998): most nodes retain their choices, and the same branch and bound solves the
//! rest again. Neighbourhoods grow after a complete solve and shrink otherwise.

use super::branch::Branch;
use super::clock::Clock;
use super::incumbent::Incumbent;
use super::net::Net;
use super::polish::polish;
use super::random::Random;
use super::shared::{Best, Shared};

/// The most steps that a part is worth; the least; and for how many parts there should be enough in between.
const EFFORT: u64 = 8_000_000;
const LEAST: u64 = 300_000;
const PARTS: u64 = 200;

/// Rounds of ascent at a part's first node, and at the others.
const ROUNDS: [usize; 2] = [60, 12];

/// Nodes of the first part.
const FIRST: f64 = 15.0;

/// How many nodes more, relatively, after a part that was solved, and less after one that was not.
const MORE: f64 = 1.03;
const LESS: f64 = 0.93;

/// Nodes among which the one with the most expensive choice is taken.
const DRAWS: usize = 8;

/// A search for better assignments of a net.
pub(crate) struct Improve<'s> {
    pub(crate) net: &'s Net,
    /// Reduced costs of all choices; none before there is a bound.
    pub(crate) above: &'s [Vec<f64>],
    /// The incumbent, shared with the other searches.
    pub(crate) shared: &'s Shared,
    /// Relative gain below which no assignment is looked for.
    pub(crate) margin: f64,
}

impl Improve<'_> {
    /// Improves the incumbent, if there is one, until the clock stops or `ended` holds.
    pub(crate) fn run(&self, clock: &mut Clock, random: &mut Random, ended: impl Fn() -> bool) {
        if self.shared.cost() == f64::INFINITY {
            return;
        }
        let mut best = Incumbent::new(self.net, self.shared.best());
        polish(&mut best, clock);
        self.shared.offer(best.cost, || best.choice.clone());
        let nodes: Vec<usize> = self.net.nodes().collect();
        let effort = clock.left().map_or(EFFORT, |left| (left / PARTS).clamp(LEAST, EFFORT));
        let mut size = FIRST;
        while !clock.over() && !self.shared.finished() && !ended() {
            self.follow(&mut best);
            let free = self.choose(&nodes, &best.choice, size as usize, random);
            let mut inner = clock.part(effort);
            let found = self.solve(best.part(&free), best.cost, &mut inner);
            size = (size * if inner.over() { LESS } else { MORE }).clamp(1.0, nodes.len().max(1) as f64);
            clock.spend(inner.done() + nodes.len() as u64);
            if !found.choice.is_empty() {
                self.follow(&mut best);
                let changes: Vec<(usize, usize)> = free.iter().copied().zip(found.choice).collect();
                if best.change(&changes, self.margin * best.cost.abs()) {
                    self.shared.offer(best.cost, || best.choice.clone());
                }
            }
        }
    }

    /// Takes over what another search found.
    fn follow(&self, best: &mut Incumbent<'_>) {
        if self.shared.cost() < best.cost {
            best.adopt(&self.shared.best());
        }
    }

    fn solve(&self, part: Net, cost: f64, clock: &mut Clock) -> Best {
        let found = Shared::new(Best { choice: Vec::new(), cost });
        let (shared, margin) = (&found, self.margin);
        let mut branch = Branch { clock, shared, margin, ceiling: f64::INFINITY, rounds: ROUNDS, held: 0 };
        branch.search(part, f64::NEG_INFINITY, true);
        found.best()
    }

    /// Reduced cost of a node's choice; 0 without a bound.
    fn excess(&self, node: usize, choice: usize) -> f64 {
        self.above.get(node).map_or(0.0, |above| above[choice])
    }

    /// Chooses `size` nodes: around a node with an expensive choice, or live at a time of expensive use, or a mixture.
    fn choose(&self, nodes: &[usize], choice: &[usize], size: usize, random: &mut Random) -> Vec<usize> {
        let mut free = Chosen { is: vec![false; self.net.cost.len()], list: Vec::with_capacity(size) };
        let near = match random.below(3) {
            0 => size,
            1 => size / 2,
            _ => 0,
        };
        let live = size - near;
        if live > 0 && !self.net.room.is_empty() {
            let time = random.place(&self.net.price);
            let living = nodes
                .iter()
                .copied()
                .filter(|&node| self.net.loads[node].iter().any(|load| load.lo <= time && time < load.hi));
            let mut living: Vec<usize> = living.collect();
            for _ in 0..live.min(living.len()) {
                free.add(living.swap_remove(random.below(living.len())));
            }
        }
        let draws = if random.below(3) == 0 { 1 } else { DRAWS };
        while free.list.len() < size.min(nodes.len()) {
            let drawn = (0..draws).map(|_| nodes[random.below(nodes.len())]);
            let first = drawn
                .max_by(|&one, &other| self.excess(one, choice[one]).total_cmp(&self.excess(other, choice[other])));
            let Some(first) = first else { break };
            self.grow(&mut free, first, size, random);
            free.add(nodes[random.below(nodes.len())]);
        }
        free.list
    }

    /// Adds nodes around a node until there are `size`.
    fn grow(&self, free: &mut Chosen, first: usize, size: usize, random: &mut Random) {
        let mut rim = vec![first];
        while free.list.len() < size && !rim.is_empty() {
            let node = rim.swap_remove(random.below(rim.len()));
            if free.add(node) {
                let others = self.net.near[node].iter().map(|&edge| self.net.edges[edge].other(node));
                rim.extend(others.filter(|&other| !free.is[other]));
            }
        }
    }
}

/// Chosen nodes, each once.
struct Chosen {
    is: Vec<bool>,
    list: Vec<usize>,
}

impl Chosen {
    fn add(&mut self, node: usize) -> bool {
        let is_first = !std::mem::replace(&mut self.is[node], true);
        if is_first {
            self.list.push(node);
        }
        is_first
    }
}
