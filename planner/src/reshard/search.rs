//! Uniform-cost search (A*, Hart, Nilsson and Raphael 1968) over the layouts of a tensor.

use super::moves::moves;
use super::plain::{due, plain};
use super::{NoWay, Site, Step};
use cost::Link;
use ir::mesh::Axes;
use ir::types::{Debt, Type};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The sequence of collectives that takes the least time from one layout to another, where each step counts a nanosecond
/// more, so that of equally fast ones the shortest is found; of these the first in the fixed order of moves. It uses the axes of both layouts, and
/// of those that neither has the `spare` ones: it may cut the tensor over them on the way, so that less is moved.
///
/// # Errors
/// There is no way.
pub fn cheapest(site: &Site<'_>, from: &Type, to: &Type, spare: &Axes) -> Result<Vec<Step>, NoWay> {
    let axes = from.used_axes().union(&to.used_axes()).union(spare).sorted();
    let most = plain(site, from, to)?.iter().map(weight).sum();
    let mut search = Search { site, to, axes, most, nodes: Vec::new(), known: HashMap::new(), open: BinaryHeap::new() };
    if let Some(step) = search.direct(from) {
        return Ok(vec![step]);
    }
    search.reach(from.clone(), 0.0, None);
    while let Some(Reverse((_, place))) = search.open.pop() {
        let node = &mut search.nodes[place];
        if node.ty == *to {
            return Ok(search.way_to(place));
        }
        if std::mem::replace(&mut node.followed, true) {
            continue;
        }
        let so_far = node.so_far;
        for step in moves(site, &search.axes, &node.ty, to) {
            search.reach(step.ty.clone(), so_far + weight(&step), Some((place, step)));
        }
    }
    Err(site.no_way(from, to))
}

/// Seconds, and a nanosecond for the step itself: less than any message takes.
pub(super) fn weight(step: &Step) -> f64 {
    step.seconds + STEP
}

const STEP: f64 = 1e-9;

/// What is equal to a picosecond is equal: sums of the same terms in another order are.
pub(super) fn picoseconds(seconds: f64) -> u64 {
    (seconds * 1e12).round() as u64
}

/// What a layout is apart from the tensor that lies so.
type Layout = (Vec<Axes>, Axes, Option<Debt>);

struct Search<'a> {
    site: &'a Site<'a>,
    to: &'a Type,
    axes: Axes,
    /// The weight of a way that is known: none that is dearer matters.
    most: f64,
    nodes: Vec<Node>,
    known: HashMap<Layout, usize>,
    /// Weight so far and at least to come, and node; least first.
    open: BinaryHeap<Reverse<(u64, usize)>>,
}

/// A layout that has been reached, and the last step of the best way to it.
struct Node {
    ty: Type,
    so_far: f64,
    /// Whether the steps from here have been followed, at this weight.
    followed: bool,
    last: Option<(usize, Step)>,
}

impl Search<'_> {
    /// The one step that leads to the target, where it takes no more than any way must.
    fn direct(&self, from: &Type) -> Option<Step> {
        let arriving = moves(self.site, &self.axes, from, self.to).into_iter().filter(|step| step.ty == *self.to);
        let step = arriving.min_by_key(|step| picoseconds(weight(step)))?;
        (picoseconds(weight(&step)) <= picoseconds(self.to_come(from))).then_some(step)
    }

    fn reach(&mut self, ty: Type, so_far: f64, last: Option<(usize, Step)>) {
        let least = picoseconds(so_far + self.to_come(&ty));
        if least > picoseconds(self.most) {
            return;
        }
        let layout = (ty.dims.iter().map(|dim| dim.axes.clone()).collect(), ty.storage.clone(), ty.debt.clone());
        let new = Node { ty, so_far, followed: false, last };
        let place = *self.known.entry(layout).or_insert(self.nodes.len());
        match self.nodes.get_mut(place) {
            None => self.nodes.push(new),
            Some(node) if picoseconds(so_far) < picoseconds(node.so_far) => *node = new,
            Some(_) => return,
        }
        self.open.push(Reverse((least, place)));
    }

    fn way_to(mut self, mut node: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some((before, step)) = self.nodes[node].last.take() {
            steps.push(step);
            node = before;
        }
        steps.reverse();
        steps
    }

    /// A weight that every way from here to the target has at least.
    ///
    /// In shares of the tensor, with n ranks along the axes that are due: a rank holds m now and t in the end. A payment
    /// over n' of them gets (1 - 1/n') of what the rank holds then, which is at least m, cut over all axes that neither cut
    /// the tensor now nor are still due. Of k such other ranks all payments get (1 - 1/n) m/k together; the gathers then get
    /// what is missing from m/(k n), and an all-reduce is no better. Payments have log2 n messages, gathers log2 of the
    /// factor by which they make the share grow. What the dims need counts instead where it is more ([`Search::uncutting`]).
    fn to_come(&self, ty: &Type) -> f64 {
        if ty == self.to {
            return 0.0;
        }
        let (mesh, cluster) = (self.site.mesh, self.site.cluster);
        let due = due(ty, self.to);
        let share = |ty: &Type| 1.0 / mesh.size(&ty.sharded_axes()) as f64;
        let (now, end, n) = (share(ty), share(self.to), mesh.size(&due) as f64);
        let others = mesh.size(&self.axes.without(&ty.sharded_axes()).without(&due)) as f64;
        let least = if due.is_empty() { now } else { now / others };
        let (fewer, messages) = self.uncutting(ty);
        let wire = (1.0 - 1.0 / n) * least + (end - least / n).max(fewer * now / others / n);
        let messages = n.log2() + (n * end / now).log2().max(messages);
        let least_of = |of: fn(&Link) -> f64| cluster.links.iter().map(of).fold(f64::INFINITY, f64::min);
        let seconds =
            wire * ty.bytes() as f64 * least_of(|link| 1.0 / link.bandwidth) + messages * least_of(|link| link.latency);
        // A little less, so that rounding does not make it too much.
        seconds * (1.0 - 1e-12) + STEP
    }

    /// What the dims and the storage need where c times as many shards are to become fewer: each an all-gather or an
    /// all-to-all of its own, which gets (1 - 1/c) of what a rank holds in log2 c messages. Where the axes alone differ, some
    /// change must still be: a message. Gives the sum of (1 - 1/c), and the messages.
    fn uncutting(&self, ty: &Type) -> (f64, f64) {
        let dims = ty.dims.iter().zip(&self.to.dims).map(|(dim, to)| (&dim.axes, &to.axes));
        let (mut fewer, mut messages, mut some) = (0.0, 0.0, 0.0);
        for (axes, to) in dims.chain([(&ty.storage, &self.to.storage)]) {
            let times = self.site.mesh.size(axes) as f64 / self.site.mesh.size(to) as f64;
            if times > 1.0 {
                fewer += 1.0 - 1.0 / times;
                messages += times.log2().max(1.0);
            }
            if !axes.is_prefix_of(to) {
                some = 1.0;
            }
        }
        (fewer, f64::max(messages, some))
    }
}
