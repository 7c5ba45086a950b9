//! Successors of a sharding by one collective.

use super::graph::{Change, Form, Graph};
use super::lists::{List, Set, subsets};
use cost::Pattern;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Receiver of the shardings that one collective makes of another.
pub(super) trait Successors {
    /// True if some permute may be on a cheapest path, where a rank has `bytes` bytes. There are many of them.
    fn takes_permutes(&self, graph: &Graph<'_>, bytes: u64) -> bool;

    /// True if a permute that takes `seconds` or more may be on one.
    fn takes_permute(&self, graph: &Graph<'_>, seconds: f64) -> bool;

    /// Receives a sharding, with the weight of the collective.
    fn add(&mut self, graph: &Graph<'_>, change: Change, next: &Form, weight: f64);
}

impl Graph<'_> {
    /// Passes to `next` each sharding that one collective over the given axes produces and that may be on a cheapest
    /// path, with its weight. The order is fixed. Axes in `claims` may become partial: a search for a target claims
    /// exactly the target's partial axes. Any other new partial axis would have to be reduced again: ranks would send zeros.
    pub(super) fn moves(&mut self, axes: Set, form: &Form, claims: Set, next: &mut impl Successors) {
        let (bytes, places) = (self.bytes(form), if self.is_stored(form) { self.rank() } else { 0 }..self.rank() + 1);
        let free = axes & !self.cut_by(form) & !form.unreduced;
        let mut from = Moves { graph: self, bytes, form: form.clone(), places, next };
        from.reductions();
        from.gathers();
        from.exchanges();
        from.renamings(axes);
        from.shards(free);
        from.partials(claims & free);
        from.unshards(axes);
    }

    fn is_stored(&self, form: &Form) -> bool {
        form.lists[self.rank()] != List::NONE
    }
}

struct Moves<'g, 'a, S> {
    graph: &'g mut Graph<'a>,
    /// Bytes per rank of the current sharding.
    bytes: u64,
    /// Sharding from which the moves start; modified while one successor is shown.
    form: Form,
    /// Dims and storage that may change; only the storage if the tensor is flat-sharded.
    places: std::ops::Range<usize>,
    next: &'g mut S,
}

impl<S: Successors> Moves<'_, '_, S> {
    /// Shows the modified sharding if the mesh allows it.
    fn made(&mut self, change: Change, pattern: Pattern, over: Set) {
        let Moves { graph, bytes, form, next, .. } = self;
        if graph.holds(form) {
            let after = graph.bytes(form);
            let weight = graph.weight(change, pattern, over, *bytes, after);
            next.add(graph, change, form, weight);
        }
    }

    /// Shows the sharding with another axis list in one position.
    fn replaced(&mut self, place: usize, list: List, change: Change, pattern: Pattern, over: Set) {
        let old = std::mem::replace(&mut self.form.lists[place], list);
        self.made(change, pattern, over);
        self.form.lists[place] = old;
    }

    /// Dims and storage that may get more axes.
    fn targets(&self) -> SmallVec<[usize; 8]> {
        self.places.clone().filter(|&place| !self.graph.is_spare(&self.form, place)).collect()
    }

    fn joined(&mut self, place: usize, more: List, start: usize) -> List {
        let list = self.graph.lists.joined(self.form.lists[place], more, start);
        self.graph.cut();
        list
    }

    fn reductions(&mut self) {
        let (unreduced, max) = (self.form.unreduced, self.form.max);
        for over in subsets(unreduced) {
            self.set_unreduced(unreduced & !over, max);
            self.made(Change::Reduce, Pattern::Sum, over);
        }
        let targets = self.targets();
        for &list in &*self.graph.lists.orders(unreduced) {
            let over = self.graph.lists[list].set;
            self.set_unreduced(unreduced & !over, max);
            for &place in &targets {
                let longer = self.joined(place, list, 0);
                self.replaced(place, longer, Change::Scatter(place), Pattern::Scatter, over);
            }
        }
        self.set_unreduced(unreduced, max);
    }

    fn set_unreduced(&mut self, unreduced: Set, max: bool) {
        (self.form.unreduced, self.form.max) = (unreduced, max && unreduced != 0);
    }

    fn gathers(&mut self) {
        let rank = self.graph.rank();
        for place in [rank].into_iter().chain(self.places.start..rank) {
            let list = self.form.lists[place];
            for kept in 0..self.graph.lists[list].axes.len() {
                let (shorter, over) = self.minor_end(list, kept);
                self.replaced(place, shorter, Change::Gather(place), Pattern::Gather, over);
            }
        }
    }

    fn exchanges(&mut self) {
        let dims = self.places.start..self.graph.rank();
        for from in dims.clone() {
            let list = self.form.lists[from];
            for kept in 0..self.graph.lists[list].axes.len() {
                let (shorter, over) = self.minor_end(list, kept);
                self.form.lists[from] = shorter;
                for to in self.targets().into_iter().filter(|&to| to != from && dims.contains(&to)) {
                    let longer = self.joined(to, list, kept);
                    self.replaced(to, longer, Change::Exchange(from, to), Pattern::Exchange, over);
                }
                self.form.lists[from] = list;
            }
        }
    }

    /// Splits a list after its first `kept` axes: returns the prefix, and the set of the remaining axes.
    fn minor_end(&self, list: List, kept: usize) -> (List, Set) {
        let lists = &self.graph.lists;
        let shorter = lists.prefix(list, kept);
        (shorter, lists[list].set & !lists[shorter].set)
    }

    /// Permutes: other axes on the dims with the same total number of shards.
    fn renamings(&mut self, axes: Set) {
        let rank = self.graph.rank();
        if rank == 0 || self.places.start > 0 || !self.next.takes_permutes(self.graph, self.bytes) {
            return;
        }
        let own = self.form.clone();
        let own = &own.lists[..rank];
        let usable = axes & !self.form.unreduced;
        let mut least: FxHashMap<(Set, u64), f64> = FxHashMap::default();
        let (all, aims) = (self.graph.renamings(&self.form, usable), self.graph.aims(&self.form, usable));
        for dims in all.chunks_exact(rank).chain(aims.chunks_exact(rank)).filter(|&dims| dims != own) {
            let ends = own.iter().zip(dims).filter(|(old, new)| old != new);
            let over = ends.fold(0, |over, (&old, &new)| over | self.graph.lists.ends(old, new));
            self.form.lists[..rank].copy_from_slice(dims);
            let (before, after) = (self.bytes, self.graph.bytes(&self.form));
            let in_one = least
                .entry((over, after))
                .or_insert_with(|| self.graph.seconds(Pattern::Pieces(1), over, before, after));
            if !self.next.takes_permute(self.graph, *in_one) {
                continue;
            }
            let pieces = self.graph.pieces(own, dims);
            self.made(Change::Permute, Pattern::Pieces(pieces), over);
        }
        self.form.lists[..rank].copy_from_slice(own);
    }

    fn shards(&mut self, free: Set) {
        let targets = self.targets();
        for &list in &*self.graph.lists.orders(free) {
            let over = self.graph.lists[list].set;
            for &place in &targets {
                let longer = self.joined(place, list, 0);
                self.replaced(place, longer, Change::AllSlice(place), Pattern::Local, over);
            }
        }
    }

    /// Makes a dim partial: each rank pads its shard with zeros. With an immediate reduce-scatter this moves axes from
    /// a dim to the storage.
    fn unshards(&mut self, axes: Set) {
        let (unreduced, max) = (self.form.unreduced, self.form.max);
        for place in if max { 0..0 } else { self.places.start..self.graph.rank() } {
            let list = self.form.lists[place];
            for kept in 0..self.graph.lists[list].axes.len() {
                let (shorter, over) = self.minor_end(list, kept);
                if over & !axes == 0 {
                    self.set_unreduced(unreduced | over, false);
                    self.replaced(place, shorter, Change::Unshard(place), Pattern::Local, over);
                }
            }
        }
        self.set_unreduced(unreduced, max);
    }

    /// A partial maximum cannot also be a partial sum.
    fn partials(&mut self, claims: Set) {
        let (unreduced, max) = (self.form.unreduced, self.form.max);
        for over in subsets(if max { 0 } else { claims }) {
            self.set_unreduced(unreduced | over, false);
            self.made(Change::ToPartial, Pattern::Local, over);
        }
        self.set_unreduced(unreduced, max);
    }
}
