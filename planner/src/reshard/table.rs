//! Seconds between all layouts of one tensor, by shortest paths from one layout to all others (Dijkstra 1959).
//!
//! What [`cheapest`](super::cheapest) finds for one pair without spare axes, at the price of few: the same moves with the same
//! weights. On meshes of more axes than a graph of all layouts can have, one natural path is priced instead ([`Fare`]).

use super::graph::{Form, Graph};
use super::hops::Fare;
use super::layout::Layout;
use super::lists::{List, Set, set};
use super::{Site, picoseconds};
use ir::mesh::Axes;
use ir::types::Type;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::rc::Rc;

/// The layouts of a tensor that have been asked for or lie on a way, and what ways between them take.
pub(crate) struct Table<'a> {
    graph: Graph<'a>,
    ty: Type,
    /// By what a path is priced where the shortest is not searched.
    fare: Option<Rc<Fare<'a>>>,
    /// Whether it may be stored on the way.
    stored: bool,
    layouts: Vec<Layout>,
    forms: Vec<Form>,
    places: FxHashMap<Form, u32>,
    /// Per layout: those that one step leads to, and its weight.
    steps: HashMap<u32, Vec<(u32, f64)>>,
    /// Per layout, and the axes that a way may use: seconds to each other.
    rows: HashMap<(u32, Set), Vec<f64>>,
}

impl<'a> Table<'a> {
    /// The table of a tensor's type, which may be `stored` flat; by shortest paths if there is no `fare`.
    pub(crate) fn new(site: Site<'a>, ty: &Type, stored: bool, fare: Option<Rc<Fare<'a>>>) -> Table<'a> {
        let (layouts, forms, places, steps, rows) = Default::default();
        Table { graph: Graph::new(site, ty), ty: ty.logical(), fare, stored, layouts, forms, places, steps, rows }
    }

    /// The number of a layout.
    pub(crate) fn place(&mut self, layout: &Layout) -> u32 {
        let dims: Vec<&Axes> = layout.dims.iter().collect();
        let form = self.graph.form(&dims, &layout.storage, &layout.unreduced, false);
        self.place_of(&form)
    }

    fn place_of(&mut self, form: &Form) -> u32 {
        if let Some(&place) = self.places.get(form) {
            return place;
        }
        let place = self.layouts.len() as u32;
        self.layouts.push(self.graph.layout(form));
        self.forms.push(form.clone());
        self.places.insert(form.clone(), place);
        place
    }

    /// The layout of a number.
    pub(crate) fn layout(&self, place: u32) -> &Layout {
        &self.layouts[place as usize]
    }

    /// Bytes on a rank.
    pub(crate) fn bytes(&self, place: u32) -> u64 {
        self.graph.bytes(&self.forms[place as usize])
    }

    /// Seconds from one layout to another; infinite where no way leads.
    pub(crate) fn seconds(&mut self, from: u32, to: u32) -> f64 {
        if from == to {
            return 0.0;
        }
        if let Some(fare) = &self.fare {
            return fare.seconds(&self.ty, self.layout(from), self.layout(to));
        }
        let key = (from, self.used(from) | self.used(to));
        if !self.rows.contains_key(&key) {
            let row = self.row(from, key.1);
            self.rows.insert(key, row);
        }
        self.rows[&key].get(to as usize).copied().unwrap_or(f64::INFINITY)
    }

    fn used(&self, place: u32) -> Set {
        let form = &self.forms[place as usize];
        self.graph.cut_by(form) | form.unreduced
    }

    fn row(&mut self, from: u32, axes: Set) -> Vec<f64> {
        let mut row = vec![f64::INFINITY; self.layouts.len()];
        let mut open = BinaryHeap::from([Reverse((0, from))]);
        row[from as usize] = 0.0;
        while let Some(Reverse((at, place))) = open.pop() {
            let so_far = row[place as usize];
            if picoseconds(so_far) < at {
                continue;
            }
            self.follow(place);
            row.resize(self.layouts.len(), f64::INFINITY);
            for &(next, step) in &self.steps[&place] {
                let weight = so_far + step;
                if self.used(next) & !axes != 0 {
                    continue;
                }
                if picoseconds(weight) < picoseconds(row[next as usize]) {
                    row[next as usize] = weight;
                    open.push(Reverse((picoseconds(weight), next)));
                }
            }
        }
        row
    }

    /// Finds the steps from a layout, once.
    fn follow(&mut self, place: u32) {
        if self.steps.contains_key(&place) {
            return;
        }
        let axes = set(&self.graph.site.mesh.tensor_axes());
        let (form, rank) = (self.forms[place as usize].clone(), self.graph.rank());
        let mut found: Vec<(Form, f64)> = Vec::new();
        self.graph.moves(axes, &form, axes, &mut |_, _, next, weight| {
            if self.stored || next.lists[rank] == List::NONE {
                found.push((next.clone(), weight));
            }
        });
        let steps = found.iter().map(|(next, weight)| (self.place_of(next), *weight)).collect();
        self.steps.insert(place, steps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reshard::layout::Place;
    use crate::reshard::{Step, cheapest};
    use cost::CPU;
    use ir::mesh::Mesh;
    use ir::types::{DType, Dims};

    #[test]
    fn what_the_table_says_is_what_the_cheapest_way_takes() {
        let (mesh, dims) = (Mesh::new("m", &[("x", 2), ("y", 4)]), Dims::new());
        let site = Site { mesh: &mesh, dims: &dims, cluster: &CPU };
        let ty = Type::of(DType::F32, &[512, 4096]);
        let mut table = Table::new(site, &ty, true, None);
        let axis = |name: &str| mesh.lookup(name).unwrap().as_slice()[0];
        let places = [Place::Whole, Place::Dim(0), Place::Dim(1), Place::Partial, Place::Stored];
        let layouts: Vec<Layout> = places
            .iter()
            .flat_map(|&x| places.map(|y| Layout::whole(&ty).with(axis("x"), x).with(axis("y"), y)))
            .collect();
        for from in &layouts {
            for to in &layouts {
                let ends = (table.place(from), table.place(to));
                let seconds = table.seconds(ends.0, ends.1);
                let way = cheapest(&site, &from.on(&ty), &to.on(&ty), &Axes::none());
                let wanted = way.map_or(f64::INFINITY, |way| way.iter().map(Step::weight).sum());
                let off = (seconds - wanted).abs();
                assert!(off.is_nan() || off <= 1e-9 * wanted + 5e-12, "{from:?} to {to:?}: {seconds}, not {wanted}");
            }
        }
    }
}
