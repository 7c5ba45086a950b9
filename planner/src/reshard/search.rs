//! Uniform-cost search (A*, Hart, Nilsson and Raphael 1968) over the layouts of a tensor.

use super::fuse::{self, Fused};
use super::graph::{Change, Form, Graph};
use super::lists::{self, List, Set};
use super::plain::plain;
use super::{NoWay, SLICE, STEP, Site, Step, picoseconds};
use cost::Link;
use ir::mesh::Axes;
use ir::ops::Collective;
use ir::types::Type;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The sequence of collectives from one layout to another in which ranks wait least for each other: of least
/// [weight](Step::weight), and of several the first in the fixed order of moves. Consecutive slices are one step. It uses the
/// axes of both layouts, and of those that neither has the `spare` ones: it may cut the tensor over them on the way, so
/// that less is moved. Over more than a few axes those that stand side by side before and afterwards move as one; where they
/// are still too many, or the mesh has more than 64, it is the plain way.
///
/// # Errors
/// There is no way.
pub fn cheapest(site: &Site<'_>, from: &Type, to: &Type, spare: &Axes) -> Result<Vec<Step>, NoWay> {
    let known = plain(site, from, to)?;
    if site.mesh.axes.len() > lists::MOST {
        return Ok(known);
    }
    let axes = from.used_axes().union(&to.used_axes()).union(spare);
    if axes.len() <= fuse::MOST {
        return searched(site, from, to, &axes, &known);
    }
    let used = from.used_axes().union(&to.used_axes());
    if used.len() <= fuse::MOST_USED {
        return searched(site, from, to, &used, &known);
    }
    let fused = Fused::of(site, from, to);
    if fused.mesh.axes.len() > fuse::MOST_FUSED {
        return Ok(known);
    }
    let (small, [from_fused, to_fused]) = (Site { mesh: &fused.mesh, ..*site }, &fused.ends);
    let axes = from_fused.used_axes().union(&to_fused.used_axes());
    let found = searched(&small, from_fused, to_fused, &axes, &plain(&small, from_fused, to_fused)?)?;
    let steps = fused.steps(site, from, found);
    let seconds = |steps: &[Step]| steps.iter().map(Step::weight).sum::<f64>();
    Ok(steps.filter(|steps| seconds(steps) <= seconds(&known)).unwrap_or(known))
}

/// The best of all sequences over these axes; `known` is one.
fn searched(site: &Site<'_>, from: &Type, to: &Type, axes: &Axes, known: &[Step]) -> Result<Vec<Step>, NoWay> {
    let mut graph = Graph::new(*site, from);
    // The search goes dim by dim where the naive path has one slice.
    let most = known.iter().map(Step::weight).sum::<f64>() + SLICE * from.rank() as f64;
    let search = Search::new(&mut graph, lists::set(axes), to, most);
    let start = graph.form_of(from);
    graph.set_ends(&start, &search.to, search.axes);
    let way = search.way(&mut graph, &start).ok_or_else(|| site.no_way(from, to))?;
    let mut steps: Vec<Step> = Vec::new();
    for change in merged(way) {
        let operand = steps.last().map_or(from, |step| &step.ty);
        steps.push(site.step(change, operand).ok_or_else(|| site.no_way(from, to))?);
    }
    Ok(steps)
}

/// The same steps with consecutive slices of dims as one.
fn merged(way: Vec<Collective>) -> Vec<Collective> {
    let mut all: Vec<Collective> = Vec::new();
    for change in way {
        match (all.last_mut(), change) {
            (Some(Collective::AllSlice { dims: before, .. }), Collective::AllSlice { dims, .. })
                if !before.is_empty() && !dims.is_empty() =>
            {
                let of = |dims: &[Axes], dim: usize| dims.get(dim).cloned().unwrap_or_default();
                let both = |dim| of(before, dim).union(&of(&dims, dim));
                let slice = Collective::slice((0..before.len().max(dims.len())).map(both).collect());
                all.pop();
                all.push(slice);
            }
            (_, change) => all.push(change),
        }
    }
    all
}

/// What the search holds to be the least weight of a way.
#[cfg(test)]
pub(super) fn estimate(site: &Site<'_>, from: &Type, to: &Type, axes: &Axes) -> f64 {
    let mut graph = Graph::new(*site, from);
    let mut search = Search::new(&mut graph, lists::set(axes), to, f64::INFINITY);
    let from = graph.form_of(from);
    search.remaining(&graph, &from)
}

struct Search {
    axes: Set,
    to: Form,
    /// Picoseconds of a way that is known: none that is dearer matters.
    most: u64,
    nodes: Vec<Node>,
    known: FxHashMap<Form, usize>,
    /// Picoseconds so far and at least to come, and node; least first.
    open: BinaryHeap<Reverse<(u64, usize)>>,
    /// Of the whole tensor.
    bytes: f64,
    /// Seconds on the fastest link, and the shortest latency.
    per_byte: f64,
    latency: f64,
    /// The share of the tensor that a rank has in the end.
    end: f64,
    /// Per sequence and place.
    needs: Vec<Need>,
}

/// A layout that has been reached, and the last step of the best way to it.
struct Node {
    form: Form,
    so_far: f64,
    to_come: f64,
    /// Whether the steps from here have been followed, at this weight.
    followed: bool,
    last: Option<(usize, Change)>,
}

/// What a dim or the storage needs where c times as many shards are to become fewer: an all-gather or an all-to-all of its
/// own, which gets (1 - 1/c) of what a rank holds in log2 c messages.
struct Need {
    /// 1 - 1/c, or 0.
    fewer: f64,
    messages: f64,
    /// A message where axes of several ranks must give way to others, even if the number of shards is right: 1, or 0.
    some: f64,
}

impl Search {
    /// A search for the form of a type, over these axes, in at most so many seconds.
    fn new(graph: &mut Graph<'_>, axes: Set, to: &Type, most: f64) -> Search {
        let Site { mesh, cluster, .. } = graph.site;
        let least_of = |of: fn(&Link) -> f64| cluster.links.iter().map(of).fold(f64::INFINITY, f64::min);
        Search {
            axes,
            to: graph.form_of(to),
            most: picoseconds(most),
            nodes: Vec::new(),
            known: FxHashMap::default(),
            open: BinaryHeap::new(),
            bytes: to.bytes() as f64,
            per_byte: least_of(|link| 1.0 / link.bandwidth),
            latency: least_of(|link| link.latency),
            end: 1.0 / mesh.size(&to.sharded_axes()) as f64,
            needs: Vec::new(),
        }
    }

    /// The cheapest way from a form.
    fn way(mut self, graph: &mut Graph<'_>, from: &Form) -> Option<Vec<Collective>> {
        if let Some(step) = self.direct(graph, from) {
            return Some(vec![step]);
        }
        self.reach(graph, from, 0.0, None);
        while let Some(Reverse((_, place))) = self.open.pop() {
            let node = &mut self.nodes[place];
            if node.form == self.to {
                return Some(self.way_to(graph, place));
            }
            if std::mem::replace(&mut node.followed, true) {
                continue;
            }
            let (form, so_far) = (node.form.clone(), node.so_far);
            graph.moves(self.axes, &form, self.to.unreduced, &mut |graph, change, next, weight| {
                self.reach(graph, next, so_far + weight, Some((place, change)));
            });
        }
        None
    }

    /// The one step that leads to the target, where it takes no more than any way must.
    fn direct(&mut self, graph: &mut Graph<'_>, from: &Form) -> Option<Collective> {
        let least = picoseconds(self.remaining(graph, from));
        let mut best: Option<(u64, Collective)> = None;
        graph.moves(self.axes, from, self.to.unreduced, &mut |graph, change, next, weight| {
            if *next != self.to {
                return;
            }
            let weight = picoseconds(weight);
            if best.as_ref().is_none_or(|(best, _)| weight < *best) {
                best = Some((weight, graph.collective(change, from, next)));
            }
        });
        best.filter(|(weight, _)| *weight <= least).map(|(_, step)| step)
    }

    /// Notes that a form has been reached with this weight, unless that is too much or no news.
    fn reach(&mut self, graph: &Graph<'_>, form: &Form, so_far: f64, last: Option<(usize, Change)>) {
        let weight = picoseconds(so_far);
        if weight > self.most {
            return;
        }
        let known = self.known.get(form).copied();
        if known.is_some_and(|place| weight >= picoseconds(self.nodes[place].so_far)) {
            return;
        }
        let to_come = match known {
            Some(place) => self.nodes[place].to_come,
            None => self.remaining(graph, form),
        };
        let least = picoseconds(so_far + to_come);
        if least > self.most {
            return;
        }
        let new = Node { form: form.clone(), so_far, to_come, followed: false, last };
        let place = known.unwrap_or(self.nodes.len());
        if known.is_some() {
            self.nodes[place] = new;
        } else {
            self.known.insert(form.clone(), place);
            self.nodes.push(new);
        }
        self.open.push(Reverse((least, place)));
    }

    fn way_to(&self, graph: &Graph<'_>, mut node: usize) -> Vec<Collective> {
        let mut steps = Vec::new();
        while let Some((before, change)) = self.nodes[node].last {
            steps.push(graph.collective(change, &self.nodes[before].form, &self.nodes[node].form));
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
    /// factor by which they make the share grow. What the dims need counts instead where it is more ([`Need`]): all of it
    /// together, and at least a message where the axes alone differ. A permute gets a whole share and does for all dims what
    /// is due, in as many messages as it has pieces: no fewer than log2 of what they need. A sum over c ranks that is to be made lets the share grow
    /// by c for nothing, in any dim: the gathers make up for a c-th of t, and dims may need nothing.
    fn remaining(&mut self, graph: &Graph<'_>, form: &Form) -> f64 {
        if *form == self.to {
            return 0.0;
        }
        let due = if form.max == self.to.max { form.unreduced & !self.to.unreduced } else { form.unreduced };
        let claimed = if self.to.max { 0 } else { self.to.unreduced };
        let sharded = graph.cut_by(form);
        let size = |set: Set| graph.lists.size(set) as f64;
        let (now, n, others) = (1.0 / size(sharded), size(due), size(self.axes & !sharded & !due));
        let least = if n == 1.0 { now } else { now / others };
        let end = self.end / size(claimed);
        let (fewer, messages) = if claimed == 0 { self.uncutting(graph, form) } else { (0.0, 0.0) };
        let wire = (1.0 - 1.0 / n) * least + (end - least / n).max(fewer.min(1.0) * now / others / n);
        let messages = n.log2() + (n * end / now).log2().max(messages);
        // A little less, so that rounding does not make it too much.
        let seconds = (wire * self.bytes * self.per_byte + messages * self.latency) * (1.0 - 1e-12);
        seconds + if seconds > 0.0 { STEP } else { SLICE }
    }

    /// What dims and storage need together: the sum of (1 - 1/c), and the messages.
    fn uncutting(&mut self, graph: &Graph<'_>, form: &Form) -> (f64, f64) {
        let mesh = graph.site.mesh;
        while self.needs.len() < graph.lists.len() * form.lists.len() {
            let (list, place) = (self.needs.len() / form.lists.len(), self.needs.len() % form.lists.len());
            let (list, to) = (graph.lists.at(list), &graph.lists[self.to.lists[place]]);
            let cutting = |axes: &Axes| -> Axes { axes.iter().filter(|&axis| mesh.axes[axis].size > 1).collect() };
            let is_prefix = cutting(&list.axes).is_prefix_of(&cutting(&to.axes));
            self.needs.push(Need::of(list.size, to.size, is_prefix));
        }
        let need = |(place, list): (usize, &List)| &self.needs[list.index() * form.lists.len() + place];
        let (mut fewer, mut messages, mut some) = (0.0, 0.0, 0.0);
        for need in form.lists.iter().enumerate().map(need) {
            fewer += need.fewer;
            messages += need.messages;
            some = f64::max(some, need.some);
        }
        (fewer, f64::max(messages, some))
    }
}

impl Need {
    fn of(shards: u64, wanted: u64, is_prefix: bool) -> Need {
        let times = shards as f64 / wanted as f64;
        let (fewer, messages) = if times > 1.0 { (1.0 - 1.0 / times, times.log2().max(1.0)) } else { (0.0, 0.0) };
        Need { fewer, messages, some: if is_prefix { 0.0 } else { 1.0 } }
    }
}
