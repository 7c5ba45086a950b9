//! A* search (Hart, Nilsson and Raphael 1968) over the shardings of a tensor.

use super::fuse::{self, Fused};
use super::graph::{Change, Form, Graph};
use super::lists::{self, Set};
use super::moves::Successors;
use super::naive::naive;
use super::step_bound::StepBound;
use super::{NoPath, ReshardStep, SLICE, STEP, Site, picoseconds};
use ir::mesh::Axes;
use ir::ops::Collective;
use ir::types::Type;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Cheapest sequence of collectives between two shardings: the sequence of least [weight](ReshardStep::weight), and among
/// equals the first in the fixed order of moves. Consecutive slices are one step.
///
/// Without `spare` axes, axes that lead those of a dim before and after stay where they are. If the others may lie in many ways, axes that
/// are adjacent before and after move as one. With spare axes any path over them and the axes of both shardings is looked at, if these are
/// few: slicing over spare axes can reduce the bytes moved. If too many axes remain, the result is the naive path.
///
/// # Errors
/// No sequence of collectives produces `to` from `from`.
pub fn cheapest(site: &Site<'_>, from: &Type, to: &Type, spare: &Axes) -> Result<Vec<ReshardStep>, NoPath> {
    let axes = from.used_axes().union(&to.used_axes()).union(spare);
    if !spare.is_empty() && axes.len() <= fuse::MOST && site.mesh.axes.len() <= lists::MOST {
        return searched(site, from, to, &axes, &naive(site, from, to)?);
    }
    cheapest_fused(site, from, to, fuse::MOST_WAYS)
}

/// Cheapest sequence where axes stay or move together, unless they may lie in at most `ways` ways.
pub(super) fn cheapest_fused(site: &Site<'_>, from: &Type, to: &Type, ways: u64) -> Result<Vec<ReshardStep>, NoPath> {
    let known = naive(site, from, to)?;
    let fused = Fused::of(site, from, to, ways);
    let path = fused_path(&fused.site(site), &fused.ends[0], &fused.ends[1])?;
    let steps = fused.steps(site, from, &path);
    Ok(steps.filter(|steps| weight(steps) <= weight(&known)).unwrap_or(known))
}

/// Weight of a path.
pub(super) fn weight(steps: &[ReshardStep]) -> f64 {
    steps.iter().map(ReshardStep::weight).sum()
}

/// Cheapest sequence on the mesh of fused axes.
pub(super) fn fused_path(small: &Site<'_>, from: &Type, to: &Type) -> Result<Vec<Collective>, NoPath> {
    let known = naive(small, from, to)?;
    let axes = from.used_axes().union(&to.used_axes());
    let steps = if axes.len() <= fuse::MOST_FUSED { searched(small, from, to, &axes, &known)? } else { known };
    Ok(steps.into_iter().map(|step| step.change).collect())
}

/// Cheapest sequence over these axes; `known` is an upper bound.
fn searched(
    site: &Site<'_>,
    from: &Type,
    to: &Type,
    axes: &Axes,
    known: &[ReshardStep],
) -> Result<Vec<ReshardStep>, NoPath> {
    let mut graph = Graph::new(*site, from);
    // The search goes dim by dim where the naive path has one slice.
    let most = known.iter().map(ReshardStep::weight).sum::<f64>() + SLICE * from.rank() as f64;
    let search = Search::new(&mut graph, lists::set(axes), to, most);
    let start = graph.form_of(from);
    graph.set_ends(&start, &search.to, search.axes);
    let path = search.path(&mut graph, &start).ok_or_else(|| site.no_path(from, to))?;
    let mut steps: Vec<ReshardStep> = Vec::new();
    for change in merged(path) {
        let operand = steps.last().map_or(from, |step| &step.ty);
        steps.push(site.step(change, operand).ok_or_else(|| site.no_path(from, to))?);
    }
    Ok(steps)
}

/// Merges consecutive slices of dims into one step.
fn merged(path: Vec<Collective>) -> Vec<Collective> {
    let mut all: Vec<Collective> = Vec::new();
    for change in path {
        match (all.last_mut(), change) {
            (Some(Collective::AllSlice { dims: before, .. }), Collective::AllSlice { dims, .. })
                if !before.is_empty() && !dims.is_empty() =>
            {
                let rank = before.len().max(dims.len());
                let mut joined = before.clone();
                joined.resize_with(rank, Axes::none);
                joined.iter_mut().zip(&dims).for_each(|(axes, more)| *axes = axes.union(more));
                all.pop();
                all.push(Collective::slice(joined));
            }
            (_, change) => all.push(change),
        }
    }
    all
}

/// The search's lower bound on the weight of a path.
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
    /// Weight of a known path in picoseconds; more expensive nodes are pruned.
    most: u64,
    nodes: Vec<Node>,
    known: FxHashMap<Form, usize>,
    /// Priority queue of weight so far plus lower bound, in picoseconds, and node; least first.
    open: BinaryHeap<Reverse<(u64, usize)>>,
    /// Bytes of the unsharded tensor.
    bytes: f64,
    bound: StepBound,
    /// Fraction of the tensor that a rank has in the target sharding.
    end: f64,
    /// Needs per axis list and dim.
    needs: Vec<Need>,
}

/// A reached sharding, and the last step of the best known path to it.
struct Node {
    form: Form,
    so_far: f64,
    to_come: f64,
    /// True if the node has been expanded at this weight.
    followed: bool,
    last: Option<(usize, Change)>,
}

/// A node whose successors are reached.
struct Expansion<'s, 'f> {
    search: &'s mut Search,
    place: usize,
    form: &'f Form,
    so_far: f64,
}

impl Successors for Expansion<'_, '_> {
    /// A permute receives a rank's whole shard and makes it no larger, so that what is missing must be gathered.
    fn takes_permutes(&self, graph: &Graph<'_>, bytes: u64) -> bool {
        self.takes_permute(graph, self.search.bound.seconds(1.0, bytes as f64))
    }

    fn takes_permute(&self, graph: &Graph<'_>, seconds: f64) -> bool {
        let Search { to, end, bytes: all, bound, most, .. } = &*self.search;
        let now = 1.0 / graph.lists.size(graph.cut_by(self.form)) as f64;
        let claimed = if to.max { 0 } else { to.unreduced };
        let missing = end / graph.lists.size(claimed) as f64 - now;
        let gather = if missing > 0.0 { bound.seconds(1.0, missing * all) } else { 0.0 };
        let least = (seconds + gather) * (1.0 - 1e-12) + STEP;
        picoseconds(self.so_far + least) <= *most
    }

    fn add(&mut self, graph: &Graph<'_>, change: Change, next: &Form, weight: f64) {
        self.search.reach(graph, next, self.so_far + weight, Some((self.place, change)));
    }
}

/// Cost of reducing a dim's (or the storage's) shard count by a factor c. A separate all-gather or all-to-all receives
/// (1 - 1/c) of a rank's final bytes.
struct Need {
    /// 1 - 1/c, or 0.
    fewer: f64,
    /// True if there must be a message: for fewer shards, or to replace axes with several ranks although the shard count is right.
    message: bool,
}

impl Search {
    /// Search for the sharding of `to` over these axes, with an upper bound of `most` seconds.
    fn new(graph: &mut Graph<'_>, axes: Set, to: &Type, most: f64) -> Search {
        let mesh = graph.site.mesh;
        Search {
            axes,
            to: graph.form_of(to),
            most: picoseconds(most),
            nodes: Vec::new(),
            known: FxHashMap::default(),
            open: BinaryHeap::new(),
            bytes: to.bytes() as f64,
            bound: StepBound::of(&graph.site, &lists::axes(axes), to.bytes() as f64),
            end: 1.0 / mesh.size(&to.sharded_axes()) as f64,
            needs: Vec::new(),
        }
    }

    /// Cheapest path from a form.
    fn path(mut self, graph: &mut Graph<'_>, from: &Form) -> Option<Vec<Collective>> {
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
            let (axes, claims) = (self.axes, self.to.unreduced);
            graph.moves(axes, &form, claims, &mut Expansion { search: &mut self, place, form: &form, so_far });
        }
        None
    }

    /// Records a path to a form, unless the weight exceeds the upper bound or improves nothing.
    fn reach(&mut self, graph: &Graph<'_>, form: &Form, so_far: f64, last: Option<(usize, Change)>) {
        let weight = picoseconds(so_far);
        if weight > self.most {
            return;
        }
        if *form == self.to {
            self.most = weight;
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

    /// Admissible lower bound on the weight of every path from `form` to the target.
    ///
    /// All quantities are fractions of the tensor, and n is the number of ranks along the axes to be reduced. A rank
    /// holds m now and t in the end. A reduction over n' of the n ranks receives (1 - 1/n') of the rank's shard at that
    /// time. That shard is at least m divided by k, the number of ranks along axes that neither shard the tensor now
    /// nor are still to be reduced. All reductions together receive at least (1 - 1/n) m/k.
    /// The gathers then receive the part of t that is missing from m/(k n); an all-reduce is no better.
    /// The need of the dims replaces this term if it is larger ([`Need`]), all of it together: a permute receives a full
    /// shard and can serve all dims. Where anything is received, or only the axes differ, there is a message ([`StepBound`]).
    /// Making the tensor partial over c ranks enlarges the shard by c at no cost, in any dim. In that case the gathers
    /// supply only t/c, and the dims may need nothing.
    fn remaining(&mut self, graph: &Graph<'_>, form: &Form) -> f64 {
        if *form == self.to {
            return 0.0;
        }
        let due = if form.max == self.to.max { form.unreduced & !self.to.unreduced } else { form.unreduced };
        let claimed = if self.to.max { 0 } else { self.to.unreduced };
        let sharded = graph.cut_by(form);
        let (now, n) = (1.0 / graph.lists.size(sharded) as f64, graph.lists.size(due) as f64);
        let others = graph.lists.size(self.axes & !sharded & !due) as f64;
        let least = if n == 1.0 { now } else { now / others };
        let end = self.end / graph.lists.size(claimed) as f64;
        let Need { fewer, message } = if claimed == 0 { self.uncutting(graph, form) } else { Need::NONE };
        let wire = (1.0 - 1.0 / n) * least + (end - least / n).max(fewer.min(1.0) * now / others / n);
        let steps = f64::from(u8::from(n > 1.0 || n * end / now > 1.0 || message));
        // Scaled down slightly, so that rounding keeps the bound admissible.
        let seconds = self.bound.seconds(steps, wire * self.bytes) * (1.0 - 1e-12);
        seconds + if seconds > 0.0 { STEP } else { SLICE }
    }

    /// Combined need of dims and storage.
    fn uncutting(&mut self, graph: &Graph<'_>, form: &Form) -> Need {
        let mesh = graph.site.mesh;
        while self.needs.len() < graph.lists.len() * form.lists.len() {
            let (list, place) = (self.needs.len() / form.lists.len(), self.needs.len() % form.lists.len());
            let (list, to) = (graph.lists.at(list), &graph.lists[self.to.lists[place]]);
            let [now, then] = [&list.axes, &to.axes]
                .map(|axes| axes.iter().filter(|&axis| mesh.axes[axis].size > 1).collect::<Axes>());
            self.needs.push(Need::of(list.size, to.size, now.is_prefix_of(&then)));
        }
        let mut all = Need::NONE;
        for (place, list) in form.lists.iter().enumerate() {
            let need = &self.needs[list.index() * form.lists.len() + place];
            all = Need { fewer: all.fewer + need.fewer, message: all.message || need.message };
        }
        all
    }
}

impl Need {
    const NONE: Need = Need { fewer: 0.0, message: false };

    fn of(shards: u64, wanted: u64, is_prefix: bool) -> Need {
        let fewer = (1.0 - wanted as f64 / shards as f64).max(0.0);
        Need { fewer, message: shards > wanted || !is_prefix }
    }
}
