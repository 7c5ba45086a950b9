//! Branch and bound: presolve, bound, prune by reduced cost, then branch on the choices of a node.

use super::bucket::eliminate;
use super::clock::Clock;
use super::decode::{decode, widest};
use super::dual::{Dual, Reduced, least};
use super::net::{Infeasible, Net};
use super::presolve::presolve;
use super::shared::Shared;

/// Search for assignments that improve on the incumbent by more than the relative `margin`.
pub(crate) struct Branch<'c> {
    /// Remaining budget.
    pub(crate) clock: &'c mut Clock,
    /// Incumbent, shared between searches.
    pub(crate) shared: &'c Shared,
    /// Relative gap below which no assignment is searched.
    pub(crate) margin: f64,
    /// Cost at and above which assignments are useless.
    pub(crate) ceiling: f64,
    /// Rounds of dual ascent at the root and at other nodes.
    pub(crate) rounds: [usize; 2],
    /// Table entries of the nodes on the backtracking stack.
    pub(crate) held: usize,
}

/// Largest number of table entries for backtracking: half a gigabyte. Above it the search only dives.
const HELD: usize = 64_000_000;

impl Branch<'_> {
    /// Cost below which an assignment is an improvement.
    fn cut(&self) -> f64 {
        let cost = self.shared.cost();
        let better = if cost.is_finite() { cost - self.margin * cost.abs() } else { cost };
        better.min(self.ceiling)
    }

    fn over(&self) -> bool {
        self.shared.finished() || self.clock.over()
    }

    /// Searches a net with a `known` lower bound. Returns a lower bound on the net's assignments, or on improvements of
    /// the incumbent.
    pub(crate) fn search(&mut self, mut net: Net, mut known: f64, root: bool) -> f64 {
        let mut open = f64::INFINITY;
        loop {
            let Ok((bound, reduced)) = self.shrink(&mut net, known, root) else { return open.min(self.cut()) };
            known = bound;
            let Some(reduced) = reduced else { return open.min(known).min(self.cut()) };
            let (node, choice) = widest(&net, &reduced);
            let with: Vec<bool> = (0..net.choices(node)).map(|other| other == choice).collect();
            let without: Vec<bool> = with.iter().map(|with| !with).collect();
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

    /// Bounds a net and shifts its costs accordingly, so that later bounds start from there.
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

    /// Prunes a net until nothing changes. Returns a lower bound and, if time allows and the net is not empty, its
    /// reduced costs.
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

/// Shifts costs in a net according to the bound; no assignment changes its cost.
fn move_costs(net: &mut Net, reduced: &mut Reduced) {
    net.cost = std::mem::take(&mut reduced.cost);
    net.price.clone_from(&reduced.price);
    for (edge, table) in net.edges.iter_mut().zip(std::mem::take(&mut reduced.table)) {
        edge.table = table;
    }
}

/// Shifts costs, and prunes choices and pairs whose reduced cost is at least `room`. Returns whether another round is
/// worthwhile.
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
        net.restrict(node, &keep)?;
        for values in [&mut reduced.above[node], &mut reduced.alone[node]] {
            let mut keep = keep.iter();
            values.retain(|_| keep.next() == Some(&true));
        }
        choices += net.choices(node);
    }
    Ok((before - choices) * SHARE > before || pairs * SHARE > all)
}

/// Another round is worthwhile if at least one in this many choices or pairs was pruned.
const SHARE: usize = 50;

/// Prunes the pairs of an edge by reduced cost, including what their nodes' other edges add.
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
