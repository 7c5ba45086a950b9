//! Graph of the shardings of one tensor. Nodes are interned numbers instead of types, for searches over many shardings.

use super::lists::{self, List, Lists, Set};
use super::sharding::Sharding;
use super::{SLICE, STEP, Site};
use cost::{GroupShape, Pattern, pieces};
use ir::mesh::Axes;
use ir::ops::Collective;
use ir::types::{PartialKind, Type};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::rc::Rc;

/// Interned sharding.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) struct Form {
    /// Axis list of each dim; the last entry is that of the storage.
    pub(super) lists: SmallVec<[List; 8]>,
    /// Axes that the tensor is partial over.
    pub(super) unreduced: Set,
    /// True if the partial is a maximum.
    pub(super) max: bool,
}

impl Clone for Form {
    fn clone(&self) -> Form {
        Form { lists: SmallVec::from_slice(&self.lists), ..*self }
    }
}

/// Kind of a collective, without its axes, which follow from the shardings before and after. Dims are numbers; the
/// storage has the rank as its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Gather(usize),
    Scatter(usize),
    Reduce,
    Exchange(usize, usize),
    Permute,
    AllSlice(usize),
    ToPartial,
    Unshard(usize),
}

/// Effect of an axis list on a dim.
#[derive(Clone, Copy)]
struct Cut {
    /// Elements of the largest shard.
    bound: u64,
    even: bool,
    allowed: bool,
}

/// Number of shards of each dim.
type Shards = SmallVec<[u64; 8]>;

/// Sharding graph of a tensor.
pub(super) struct Graph<'a> {
    /// Mesh, dims and platform.
    pub(super) site: Site<'a>,
    /// Unsharded, closed type of the tensor.
    tensor: Type,
    /// Interned axis lists.
    pub(super) lists: Lists,
    /// Effects per axis list and dim.
    cuts: Vec<Cut>,
    /// Shapes of the groups along axes.
    shapes: FxHashMap<Set, GroupShape>,
    renamings: FxHashMap<(Shards, Set), Rc<[List]>>,
    pieces: FxHashMap<(usize, List, List), u64>,
    /// Interchangeable dims, ascending.
    alike: Vec<usize>,
    /// Axis lists of the search target's dims, if the search has many axes.
    aim: Vec<List>,
}

/// Largest number of permute targets for which all are tried, rather than only those that preserve the shard count of
/// each dim.
const MOST_RENAMINGS: u64 = 128;

/// Number of ordered arrangements of `axes` axes on `dims` dims, with every axis used.
pub(super) fn arrangements(axes: u32, dims: u32) -> u64 {
    let dims = u64::from(dims);
    (0..u64::from(axes)).try_fold(1u64, |all, axis| all.checked_mul(dims + axis)).unwrap_or(u64::MAX)
}

impl<'a> Graph<'a> {
    /// Graph of a tensor's shardings; the type's own sharding is ignored.
    pub(super) fn new(site: Site<'a>, ty: &Type) -> Graph<'a> {
        let (cuts, shapes, renamings, pieces, alike, aim) = Default::default();
        let (tensor, lists) = (ty.logical(), Lists::new(site.mesh));
        let mut graph = Graph { tensor, lists, site, cuts, shapes, renamings, pieces, alike, aim };
        graph.cut();
        graph
    }

    /// Prepares a search between two shardings over these axes. Dims that neither sharding shards, and that all axes
    /// together divide evenly, are interchangeable on the path. Permutes that lead to the target are always tried.
    pub(super) fn set_ends(&mut self, from: &Form, to: &Form, axes: Set) {
        let all = lists::axes(axes);
        self.alike.clear();
        for (place, dim) in self.tensor.dims.iter().enumerate() {
            let is_open = [from, to].iter().all(|form| form.lists[place] == List::NONE);
            if is_open && self.site.mesh.is_even(dim.size, &all) && self.site.allows(dim, &all) {
                self.alike.push(place);
            }
        }
        if arrangements(axes.count_ones(), self.rank() as u32) > MOST_RENAMINGS {
            self.aim = to.lists[..self.rank()].to_vec();
        }
    }

    /// Returns whether an earlier interchangeable dim is also unsharded, so that this dim need not be tried.
    pub(super) fn is_spare(&self, form: &Form, dim: usize) -> bool {
        let mut open = self.alike.iter().filter(|&&dim| form.lists[dim] == List::NONE);
        self.alike.contains(&dim) && open.next().is_some_and(|&first| first < dim)
    }

    /// Number of dims; also the index of the storage in [`Form::lists`].
    pub(super) fn rank(&self) -> usize {
        self.tensor.rank()
    }

    /// Interned form of a sharding.
    pub(super) fn form(&mut self, dims: &[&Axes], storage: &Axes, unreduced: &Axes, max: bool) -> Form {
        let lists = dims.iter().copied().chain([storage]).map(|axes| self.lists.list(axes)).collect();
        self.cut();
        Form { lists, unreduced: lists::set(unreduced), max }
    }

    /// Interned sharding of a type.
    pub(super) fn form_of(&mut self, ty: &Type) -> Form {
        let max = ty.partial.as_ref().is_some_and(|partial| partial.kind == PartialKind::Max);
        let dims: Vec<&Axes> = ty.dims.iter().map(|dim| &dim.axes).collect();
        self.form(&dims, &ty.storage, &ty.partial_axes(), max)
    }

    /// Sharding of an interned form.
    pub(super) fn sharding(&self, form: &Form) -> Sharding {
        let mut dims: Vec<Axes> = form.lists.iter().map(|&list| self.lists[list].axes.clone()).collect();
        let storage = dims.pop().unwrap_or_default();
        Sharding { dims, storage, unreduced: lists::axes(form.unreduced) }
    }

    /// Axes that shard dims or storage.
    pub(super) fn cut_by(&self, form: &Form) -> Set {
        form.lists.iter().fold(0, |set, &list| set | self.lists[list].set)
    }

    /// Collective that produces one form from another.
    pub(super) fn collective(&self, change: Change, before: &Form, after: &Form) -> Collective {
        match change {
            Change::Gather(place) => {
                Collective::AllGather { dim: self.dim(place), over: self.tail(before, after, place) }
            }
            Change::Scatter(place) => {
                Collective::ReduceScatter { dim: self.dim(place), over: self.tail(after, before, place) }
            }
            Change::Reduce => Collective::AllReduce { over: lists::axes(before.unreduced & !after.unreduced) },
            Change::Exchange(from, to) => {
                Collective::AllToAll { from, to, over: self.tail(before, after, from), ragged: None }
            }
            Change::Permute => Collective::permute(&self.sharding(before).on(&self.tensor), self.sharding(after).dims),
            Change::AllSlice(place) => Collective::all_slice(self.dim(place), self.tail(after, before, place)),
            Change::ToPartial => {
                Collective::ToPartial { dim: None, over: lists::axes(after.unreduced & !before.unreduced) }
            }
            Change::Unshard(place) => {
                Collective::ToPartial { dim: self.dim(place), over: self.tail(before, after, place) }
            }
        }
    }

    /// The dim of a place; `None` for the storage.
    fn dim(&self, place: usize) -> Option<usize> {
        (place < self.rank()).then_some(place)
    }

    /// Axes of a place in one form that it lacks in the other.
    fn tail(&self, more: &Form, less: &Form, place: usize) -> Axes {
        self.lists[more.lists[place]].axes.without(&self.lists[less.lists[place]].axes)
    }

    /// Product of the shard counts of axis lists.
    fn shards(&self, lists: &[List]) -> u64 {
        lists.iter().map(|&list| self.lists[list].size).product()
    }

    /// Bytes of the largest shard.
    pub(super) fn bytes(&self, form: &Form) -> u64 {
        let bounds = form.lists[..self.rank()].iter().enumerate().map(|(dim, &list)| self.cut_of(dim, list).bound);
        let elements: u64 = bounds.product();
        elements.div_ceil(self.lists[form.lists[self.rank()]].size) * self.tensor.dtype.bytes()
    }

    /// Weight of a collective over these axes, equal to [`ReshardStep::weight`](super::ReshardStep::weight).
    pub(super) fn weight(&mut self, change: Change, pattern: Pattern, over: Set, before: u64, after: u64) -> f64 {
        match change {
            Change::AllSlice(_) => SLICE,
            Change::ToPartial | Change::Unshard(_) => STEP,
            _ => self.seconds(pattern, over, before, after) + STEP,
        }
    }

    /// Seconds of a pattern over these axes.
    pub(super) fn seconds(&mut self, pattern: Pattern, over: Set, before: u64, after: u64) -> f64 {
        let shape = self.shapes.entry(over).or_insert_with(|| self.site.group(&lists::axes(over)));
        self.site.seconds(pattern, before as f64, after as f64, shape)
    }

    /// Returns whether the mesh allows the sharding, by the same rule as [`Site`] for types.
    pub(super) fn holds(&self, form: &Form) -> bool {
        form.lists[..self.rank()].iter().enumerate().all(|(dim, &list)| self.cut_of(dim, list).allowed)
    }

    fn cut_of(&self, dim: usize, list: List) -> Cut {
        self.cuts[list.index() * self.rank() + dim]
    }

    /// Computes the effects of newly interned axis lists on the dims.
    pub(super) fn cut(&mut self) {
        let Some(known) = self.cuts.len().checked_div(self.rank()) else { return };
        for list in self.lists.since(known) {
            for dim in &self.tensor.dims {
                let size = list.size;
                let even = dim.size.is_multiple_of(size);
                let allowed = self.site.allows(dim, &list.axes);
                self.cuts.push(Cut { bound: dim.size.div_ceil(size), even, allowed });
            }
        }
    }

    /// Permute targets over usable axes, as concatenated axis lists of all dims. These are all targets with the same
    /// total number of shards or, if there are too many, those with the same number of shards per dim.
    pub(super) fn renamings(&mut self, form: &Form, usable: Set) -> Rc<[List]> {
        let shards: Shards = form.lists[..self.rank()].iter().map(|&list| self.lists[list].size).collect();
        if arrangements(usable.count_ones(), self.rank() as u32) <= MOST_RENAMINGS {
            return self.spreads(shards.iter().product(), usable);
        }
        self.cached((shards, usable), |graph, shards, all| {
            for &shards in shards {
                *all = graph.longer(all, |size, _| size == shards);
            }
        })
    }

    /// Permute targets that extend the search target's dims by minor axes, which a later gather removes.
    pub(super) fn aims(&mut self, form: &Form, usable: Set) -> Vec<List> {
        let (rank, aim) = (self.rank(), self.aim.clone());
        let set = aim.iter().fold(0, |set, &list| set | self.lists[list].set);
        let (now, then) = (self.shards(&form.lists[..rank]), self.shards(&aim));
        if aim.is_empty() || set & !usable != 0 || !now.is_multiple_of(then) {
            return Vec::new();
        }
        let ends = self.spreads(now / then, usable & !set);
        let joined = ends.iter().zip(aim.iter().cycle()).map(|(&end, &list)| self.lists.joined(list, end, 0)).collect();
        self.cut();
        joined
    }

    /// Concatenated axis lists of all dims that use free axes and make `shards` shards in total.
    fn spreads(&mut self, shards: u64, free: Set) -> Rc<[List]> {
        self.cached((Shards::from_slice(&[shards]), free), |graph, shards, all| {
            for _ in 0..graph.rank() {
                *all = graph.longer(all, |size, so_far| shards[0].is_multiple_of(size * so_far));
            }
            all.retain(|(_, dims)| graph.shards(dims) == shards[0]);
        })
    }

    fn cached(
        &mut self,
        key: (Shards, Set),
        find: impl FnOnce(&mut Graph<'a>, &[u64], &mut Vec<(Set, Vec<List>)>),
    ) -> Rc<[List]> {
        if let Some(known) = self.renamings.get(&key) {
            return Rc::clone(known);
        }
        let mut all = vec![(key.1, Vec::new())];
        find(self, &key.0, &mut all);
        self.cut();
        let renamings: Rc<[List]> = all.into_iter().flat_map(|(_, dims)| dims).collect();
        self.renamings.insert(key, Rc::clone(&renamings));
        renamings
    }

    /// Extends partial lists of dims by one more dim; `fits` checks its shard count against the earlier dims.
    fn longer(&mut self, all: &[(Set, Vec<List>)], fits: impl Fn(u64, u64) -> bool) -> Vec<(Set, Vec<List>)> {
        let mut longer = Vec::new();
        for (free, dims) in all {
            let so_far = self.shards(dims);
            let orders = self.lists.orders(*free);
            for &list in [List::NONE].iter().chain(&*orders).filter(|&&list| fits(self.lists[list].size, so_far)) {
                longer.push((free & !self.lists[list].set, [dims.as_slice(), &[list]].concat()));
            }
        }
        longer
    }

    /// Number of pieces that a shard is assembled from after a permute.
    pub(super) fn pieces(&mut self, before: &[List], after: &[List]) -> u64 {
        let mut all = 1;
        for (dim, (&old, &new)) in before.iter().zip(after).enumerate() {
            let is_alike = self.lists[old].size == self.lists[new].size;
            if old == new || (is_alike && self.cut_of(dim, old).even && self.cut_of(dim, new).even) {
                continue;
            }
            let Graph { site, tensor, lists, pieces: known, .. } = self;
            all *= *known
                .entry((dim, old, new))
                .or_insert_with(|| pieces(site.mesh, tensor.dims[dim].size, &lists[old].axes, &lists[new].axes));
        }
        all
    }
}
