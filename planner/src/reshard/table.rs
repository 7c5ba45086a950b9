//! Table of reshard times between all shardings of one tensor, by single-source shortest paths (Dijkstra 1959).
//!
//! An entry equals the result of [`cheapest`](super::cheapest) without spare axes, with the same moves and weights, but
//! one search serves all targets. If a mesh has too many axes for a graph of all shardings, one natural path is costed
//! instead ([`Fare`]).

use super::graph::{Change, Form, Graph};
use super::hops::Fare;
use super::lists::{List, Set, set};
use super::moves::Successors;
use super::sharding::Sharding;
use super::{Site, picoseconds};
use ir::mesh::Axes;
use ir::types::Type;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Shardings of a tensor that were queried or are on a path, and the reshard times between them.
pub(crate) struct Table<'a> {
    graph: Graph<'a>,
    ty: Type,
    /// Cost of the natural path, used instead of the shortest path if present.
    fare: Option<Fare<'a>>,
    /// True if a path may use flat storage.
    stored: bool,
    shardings: Vec<Sharding>,
    forms: Vec<Form>,
    places: FxHashMap<Form, u32>,
    /// Per sharding: its successors.
    steps: HashMap<u32, Vec<Next>>,
    /// Per sharding and allowed axes: seconds to every sharding.
    rows: HashMap<(u32, Allowed), Vec<f64>>,
}

/// A sharding that one step makes of another.
#[derive(Clone, Copy)]
struct Next {
    place: u32,
    weight: f64,
    /// Axes over which the step makes the tensor partial.
    claims: Set,
}

/// Axes of the shardings on a path, and those over which it may become partial.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Allowed {
    axes: Set,
    claims: Set,
}

impl<'a> Table<'a> {
    /// Table for a tensor's type, which may be flat-sharded if `stored`; shortest paths are used if `fare` is `None`.
    pub(crate) fn new(site: Site<'a>, ty: &Type, stored: bool, fare: Option<Fare<'a>>) -> Table<'a> {
        let (shardings, forms, places, steps, rows) = Default::default();
        Table { graph: Graph::new(site, ty), ty: ty.logical(), fare, stored, shardings, forms, places, steps, rows }
    }

    /// Number of a sharding in the table.
    pub(crate) fn place(&mut self, sharding: &Sharding) -> u32 {
        let dims: Vec<&Axes> = sharding.dims.iter().collect();
        let form = self.graph.form(&dims, &sharding.storage, &sharding.unreduced, false);
        self.place_of(&form)
    }

    fn place_of(&mut self, form: &Form) -> u32 {
        if let Some(&place) = self.places.get(form) {
            return place;
        }
        let place = self.shardings.len() as u32;
        self.shardings.push(self.graph.sharding(form));
        self.forms.push(form.clone());
        self.places.insert(form.clone(), place);
        place
    }

    /// Sharding with this number.
    pub(crate) fn sharding(&self, place: u32) -> &Sharding {
        &self.shardings[place as usize]
    }

    /// Bytes per rank of the sharding with this number.
    pub(crate) fn bytes(&self, place: u32) -> u64 {
        self.graph.bytes(&self.forms[place as usize])
    }

    /// Seconds from one sharding to another; infinite if no path exists.
    pub(crate) fn seconds(&mut self, from: u32, to: u32) -> f64 {
        if from == to {
            return 0.0;
        }
        if let Some(fare) = &self.fare {
            return fare.seconds(&self.ty, self.sharding(from), self.sharding(to));
        }
        let allowed = Allowed { axes: self.used(from) | self.used(to), claims: self.forms[to as usize].unreduced };
        let key = (from, allowed);
        if !self.rows.contains_key(&key) {
            let row = self.row(from, allowed);
            self.rows.insert(key, row);
        }
        self.rows[&key].get(to as usize).copied().unwrap_or(f64::INFINITY)
    }

    fn used(&self, place: u32) -> Set {
        let form = &self.forms[place as usize];
        self.graph.cut_by(form) | form.unreduced
    }

    fn row(&mut self, from: u32, allowed: Allowed) -> Vec<f64> {
        let mut row = vec![f64::INFINITY; self.shardings.len()];
        let mut open = BinaryHeap::from([Reverse((0, from))]);
        row[from as usize] = 0.0;
        while let Some(Reverse((at, place))) = open.pop() {
            let so_far = row[place as usize];
            if picoseconds(so_far) < at {
                continue;
            }
            self.follow(place);
            row.resize(self.shardings.len(), f64::INFINITY);
            for &Next { place, weight, claims } in &self.steps[&place] {
                let weight = so_far + weight;
                if self.used(place) & !allowed.axes != 0 || claims & !allowed.claims != 0 {
                    continue;
                }
                if picoseconds(weight) < picoseconds(row[place as usize]) {
                    row[place as usize] = weight;
                    open.push(Reverse((picoseconds(weight), place)));
                }
            }
        }
        row
    }

    /// Computes the successors of a sharding, once.
    fn follow(&mut self, place: u32) {
        if self.steps.contains_key(&place) {
            return;
        }
        let axes = set(&self.graph.site.mesh.tensor_axes());
        let (form, rank) = (self.forms[place as usize].clone(), self.graph.rank());
        let mut found = Found { from: form.unreduced, stored: self.stored, rank, all: Vec::new() };
        self.graph.moves(axes, &form, axes, &mut found);
        let found = found.all.into_iter();
        let steps = found.map(|(form, weight, claims)| Next { place: self.place_of(&form), weight, claims }).collect();
        self.steps.insert(place, steps);
    }
}

/// The successors of a sharding, with the weights of their steps and the axes over which these make the tensor partial.
struct Found {
    from: Set,
    stored: bool,
    rank: usize,
    all: Vec<(Form, f64, Set)>,
}

impl Successors for Found {
    fn takes_permutes(&self, _: &Graph<'_>, _: u64) -> bool {
        true
    }

    fn takes_permute(&self, _: &Graph<'_>, _: f64) -> bool {
        true
    }

    fn add(&mut self, _: &Graph<'_>, change: Change, next: &Form, weight: f64) {
        let claims = if change == Change::ToPartial { next.unreduced & !self.from } else { 0 };
        if self.stored || next.lists[self.rank] == List::NONE {
            self.all.push((next.clone(), weight, claims));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reshard::sharding::Place;
    use crate::reshard::{ReshardStep, cheapest};
    use cost::PROGRAM;
    use ir::mesh::Mesh;
    use ir::types::{DType, Dims};

    #[test]
    fn what_the_table_says_is_what_the_cheapest_way_takes() {
        let (mesh, dims) = (Mesh::new("m", &[("x", 2), ("y", 4)]), Dims::new());
        let site = Site::new(&mesh, &dims, &PROGRAM);
        let ty = Type::of(DType::F32, &[512, 4096]);
        let mut table = Table::new(site, &ty, true, None);
        let axis = |name: &str| mesh.lookup(name).unwrap().as_slice()[0];
        let places = [Place::Whole, Place::Dim(0), Place::Dim(1), Place::Partial, Place::Stored];
        let shardings: Vec<Sharding> = places
            .iter()
            .flat_map(|&x| places.map(|y| Sharding::whole(&ty).with(axis("x"), x).with(axis("y"), y)))
            .collect();
        for from in &shardings {
            for to in &shardings {
                let ends = (table.place(from), table.place(to));
                let seconds = table.seconds(ends.0, ends.1);
                let path = cheapest(&site, &from.on(&ty), &to.on(&ty), &Axes::none());
                let wanted = path.map_or(f64::INFINITY, |path| path.iter().map(ReshardStep::weight).sum());
                let off = (seconds - wanted).abs();
                assert!(off.is_nan() || off <= 1e-9 * wanted + 5e-12, "{from:?} to {to:?}: {seconds}, not {wanted}");
            }
        }
    }
}
