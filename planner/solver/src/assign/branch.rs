//! Branch and bound: presolve, bound, drop what is too expensive for a better assignment, then try the choices of a node.

use super::bucket::eliminate;
use super::clock::Clock;
use super::decode::{decode, widest};
use super::dual::{Dual, Reduced, least};
use super::net::{Infeasible, Net};
use super::presolve::presolve;
use super::shared::Shared;

/// A search for assignments that cost less than the best one by more than `margin`, relative to it.
pub(crate) struct Branch<'c> {
    /// What there is to spend.
    pub(crate) clock: &'c mut Clock,
    /// What was found.
    pub(crate) shared: &'c Shared,
    /// The relative gain below which no assignment is looked for.
    pub(crate) margin: f64,
    /// The cost from which on assignments are of no use.
    pub(crate) ceiling: f64,
    /// Rounds of ascent at the first node, and at the others.
    pub(crate) rounds: [usize; 2],
    /// Entries of the tables that are left to come back to.
    pub(crate) held: usize,
}

/// The most entries to come back to: half a gigabyte. With more the search only goes down.
const HELD: usize = 64_000_000;

impl Branch<'_> {
    /// Only assignments that cost less are of use.
    fn cut(&self) -> f64 {
        let cost = self.shared.cost();
        let better = if cost.is_finite() { cost - self.margin * cost.abs() } else { cost };
        better.min(self.ceiling)
    }

    fn over(&self) -> bool {
        self.shared.finished() || self.clock.over()
    }

    /// Searches a net of which a bound is `known`. The answer is a bound: no assignment of the net costs less, or less than
    /// the best of all.
    pub(crate) fn search(&mut self, mut net: Net, mut known: f64, root: bool) -> f64 {
        let mut open = f64::INFINITY;
        loop {
            let Ok((bound, reduced)) = self.shrink(&mut net, known, root) else { return open.min(self.cut()) };
            known = bound;
            let Some(reduced) = reduced else { return open.min(known).min(self.cut()) };
            let (node, choice) = widest(&net, &reduced);
            let only = |keep: bool| (0..net.choices(node)).map(|i| (i == choice) == keep).collect::<Vec<_>>();
            let (with, without) = (only(true), only(false));
            let entries = net.entries();
            if self.held + entries > HELD {
                open = open.min(known);
                if net.restrict(node, &with).is_err() {
                    return open;
                }
                continue;
            }
            let mut child = net.clone();
            if child.restrict(node, &with).is_ok() {
                self.held += entries;
                open = open.min(self.search(child, known, false));
                self.held -= entries;
            }
            if self.over() {
                return open.min(known);
            }
            if net.restrict(node, &without).is_err() {
                return open.min(self.cut());
            }
        }
    }

    /// Bounds a net and moves its costs as the bound has them, so that later bounds begin there.
    pub(crate) fn root(&mut self, net: &mut Net) -> Reduced {
        let mut dual = Dual::new(net);
        dual.ascend(self.rounds[0], self.cut(), self.clock);
        let mut reduced = dual.reduced_costs();
        if let Some(choice) = decode(net, &reduced) {
            self.shared.offer(net.cost_of(&choice), || net.restore(&choice));
        }
        move_costs(net, &mut reduced);
        reduced
    }

    /// Drops from a net what no better assignment has, until that ends. The answer is a bound, with what is known of the
    /// net if there is time, and anything left to search in it.
    pub(crate) fn shrink(
        &mut self,
        net: &mut Net,
        mut known: f64,
        root: bool,
    ) -> Result<(f64, Option<Reduced>), Infeasible> {
        let rounds = self.rounds[usize::from(!root)];
        loop {
            presolve(net, self.clock)?;
            if self.over() {
                return Ok((known, None));
            }
            if net.nodes().next().is_none() {
                self.shared.offer(net.constant, || net.restore(&[]));
                return Ok((net.constant, None));
            }
            if net.room.is_empty()
                && let Some((cost, choice)) = eliminate(net, self.clock)
            {
                self.shared.offer(cost, || net.restore(&choice));
                return Ok((cost, None));
            }
            let mut dual = Dual::new(net);
            dual.ascend(rounds, self.cut(), self.clock);
            known = known.max(dual.bound);
            if known >= self.cut() {
                return Ok((known, None));
            }
            let mut reduced = dual.reduced_costs();
            if let Some(choice) = decode(net, &reduced) {
                self.shared.offer(net.cost_of(&choice), || net.restore(&choice));
            }
            let room = self.cut() - reduced.bound;
            if room <= 0.0 {
                return Ok((known, None));
            }
            let dropped = drop_dear(net, &mut reduced, room)?;
            if self.over() || !dropped {
                return Ok((known, Some(reduced).filter(|_| !self.over())));
            }
        }
    }
}

/// Moves costs in a net as the bound has them, which changes the cost of no assignment.
fn move_costs(net: &mut Net, reduced: &mut Reduced) {
    net.cost = std::mem::take(&mut reduced.cost);
    net.price.clone_from(&reduced.price);
    for (edge, table) in net.edges.iter_mut().zip(std::mem::take(&mut reduced.table)) {
        edge.table = table;
    }
}

/// Moves costs, and drops choices and forbids pairs that cost `room` or more above the bound. Says whether it dropped
/// enough to look again.
fn drop_dear(net: &mut Net, reduced: &mut Reduced, room: f64) -> Result<bool, Infeasible> {
    move_costs(net, reduced);
    let (mut pairs, mut all) = (0, 0);
    for number in 0..net.edges.len() {
        pairs += forbid_dear(net, reduced, number, room);
        all += net.edges[number].table.len();
    }
    let nodes: Vec<usize> = net.nodes().collect();
    let (before, mut choices) = (nodes.iter().map(|&node| net.choices(node)).sum::<usize>(), 0);
    for node in nodes {
        let keep: Vec<bool> = reduced.above[node].iter().map(|&above| above < room).collect();
        let kept = |values: &mut Vec<f64>| {
            *values = values.iter().zip(&keep).filter(|kept| *kept.1).map(|kept| *kept.0).collect()
        };
        net.restrict(node, &keep)?;
        kept(&mut reduced.above[node]);
        kept(&mut reduced.alone[node]);
        choices += net.choices(node);
    }
    Ok((before - choices) * SHARE > before || pairs * SHARE > all)
}

/// A look again is worth while when one of so many choices or pairs went.
const SHARE: usize = 50;

/// Forbids the pairs of an edge that cost too much above the bound, with all that their nodes' other edges add.
fn forbid_dear(net: &mut Net, reduced: &Reduced, number: usize, room: f64) -> usize {
    let edge = &mut net.edges[number];
    if !edge.alive() {
        return 0;
    }
    let (of_a, of_b) = (&reduced.above[edge.a], &reduced.above[edge.b]);
    let (rows, columns) = least(&edge.table, of_b.len());
    let all = rows.iter().copied().fold(f64::INFINITY, f64::min);
    let mut gone = 0;
    for ((row, a), least) in edge.table.chunks_exact_mut(of_b.len()).zip(of_a).zip(rows) {
        for ((cost, b), column) in row.iter_mut().zip(of_b).zip(&columns) {
            if cost.is_finite() && (a - (least - all)) + (b - (column - all)) + (*cost - all) >= room {
                *cost = f64::INFINITY;
                gone += 1;
            }
        }
    }
    if gone > 0 {
        net.touched[edge.a] = true;
        net.touched[edge.b] = true;
    }
    gone
}
