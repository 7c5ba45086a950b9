//! Changes of sharding over many axes as changes over few: axes that stand side by side before and afterwards move as one, and
//! what stays at the front of an evenly sharded dim only makes it smaller.

use super::{Site, Step};
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::ops::Collective;
use ir::types::{Partial, Type};

/// The most axes over which all sequences of collectives are searched: their orders grow as factorials.
pub(super) const MOST: usize = 4;

/// The same without spare ones.
pub(super) const MOST_USED: usize = 5;

/// The same of fused axes, without spare ones.
pub(super) const MOST_FUSED: usize = 7;

/// A change of sharding on a mesh of fused axes.
pub(super) struct Fused {
    /// The fused axes.
    pub(super) mesh: Mesh,
    /// The tensor before and afterwards.
    pub(super) ends: [Type; 2],
    /// The axes of which each is made.
    parts: Vec<Axes>,
    /// What stays at the front of each dim.
    fronts: Vec<Axes>,
}

/// Where an axis stands in a type, and how far from the front of a sequence.
#[derive(Clone, Copy, PartialEq)]
enum Spot {
    Whole,
    Partial,
    /// The dim, or the rank for the storage, and the place there.
    At(usize, usize),
}

impl Spot {
    fn of(ty: &Type, axis: AxisId) -> Spot {
        if ty.partial_axes().contains(axis) {
            return Spot::Partial;
        }
        let lists = ty.dims.iter().map(|dim| &dim.axes).chain([&ty.storage]).enumerate();
        let mut spots =
            lists.filter_map(|(list, axes)| axes.iter().position(|known| known == axis).map(|at| (list, at)));
        spots.next().map_or(Spot::Whole, |(list, at)| Spot::At(list, at))
    }

    /// Whether an axis here directly follows one at the other spot.
    fn follows(self, other: Spot) -> bool {
        match (other, self) {
            (Spot::At(list, at), Spot::At(next, place)) => list == next && place == at + 1,
            (one, other) => one == other,
        }
    }
}

impl Fused {
    /// The change from one type to another with as few axes as it can be told with.
    pub(super) fn of(site: &Site<'_>, from: &Type, to: &Type) -> Fused {
        let fronts: Vec<Axes> = from.dims.iter().zip(&to.dims).map(|(old, new)| front(site, old, &new.axes)).collect();
        let stays = fronts.iter().fold(Axes::none(), |all, front| all.union(front));
        let moving: Vec<AxisId> = from.used_axes().union(&to.used_axes()).without(&stays).sorted().iter().collect();
        let spots = |axis: AxisId| [Spot::of(from, axis), Spot::of(to, axis)];
        let follows =
            |next: AxisId, axis: AxisId| spots(next).iter().zip(spots(axis)).all(|(next, spot)| next.follows(spot));
        let mut parts: Vec<Axes> = Vec::new();
        let mut left = moving.clone();
        // A chain begins with an axis that follows none; axes that stand nowhere in order follow each other both ways.
        while let Some(first) = left.iter().copied().find(|&axis| {
            left.iter().all(|&other| other == axis || !follows(axis, other) || (follows(other, axis) && axis < other))
        }) {
            let mut chain = Axes::one(first);
            left.retain(|&axis| axis != first);
            while let Some(place) =
                left.iter().position(|&axis| chain.iter().next_back().is_some_and(|last| follows(axis, last)))
            {
                chain.push(left.remove(place));
            }
            parts.push(chain);
        }
        let size = |(number, part): (usize, &Axes)| (format!("a{number}"), site.mesh.size(part));
        let sizes: Vec<(String, u64)> = parts.iter().enumerate().map(size).collect();
        let mesh = Mesh::new("fused", &sizes.iter().map(|(name, size)| (name.as_str(), *size)).collect::<Vec<_>>());
        let ends = [from, to].map(|ty| on_parts(site, ty, &parts, &fronts));
        Fused { mesh, ends, parts, fronts }
    }

    /// The steps of the tensor itself, from those of the fused one; none where it cannot be sharded so on the way.
    pub(super) fn steps(&self, site: &Site<'_>, from: &Type, fused: Vec<Step>) -> Option<Vec<Step>> {
        let mut steps: Vec<Step> = Vec::with_capacity(fused.len());
        for step in fused {
            let operand = steps.last().map_or(from, |step| &step.ty);
            let change = self.change(step.change, operand);
            steps.push(site.step(change, operand)?);
        }
        Some(steps)
    }

    fn change(&self, fused: Collective, operand: &Type) -> Collective {
        let list =
            |axes: &Axes| -> Axes { axes.iter().flat_map(|axis| self.parts[axis.as_u32() as usize].iter()).collect() };
        match fused {
            Collective::AllGather { dim, over } => Collective::AllGather { dim, over: list(&over) },
            Collective::ReduceScatter { dim, over } => Collective::ReduceScatter { dim, over: list(&over) },
            Collective::AllReduce { over } => Collective::AllReduce { over: list(&over).sorted() },
            Collective::AllToAll { from, to, over } => Collective::AllToAll { from, to, over: list(&over) },
            Collective::Permute { dims, .. } => {
                let whole = |(front, axes): (&Axes, &Axes)| front.union(&list(axes));
                Collective::permute(operand, self.fronts.iter().zip(&dims).map(whole).collect())
            }
            Collective::AllSlice { dims, over } if dims.is_empty() => Collective::all_slice(None, list(&over)),
            Collective::AllSlice { dims, .. } => Collective::slice(dims.iter().map(list).collect()),
            Collective::ToPartial { dim: None, over } => {
                Collective::ToPartial { dim: None, over: list(&over).sorted() }
            }
            Collective::ToPartial { dim, over } => Collective::ToPartial { dim, over: list(&over) },
        }
    }
}

/// What both sequences of a dim begin with, if it shards the dim evenly.
fn front(site: &Site<'_>, dim: &ir::types::Dim, after: &Axes) -> Axes {
    let mut front = dim.axes.common_prefix(after);
    while !site.mesh.is_even(dim.size, &front) {
        front.pop();
    }
    front
}

/// A type on the fused axes, without what stays at the front of its dims.
fn on_parts(site: &Site<'_>, ty: &Type, parts: &[Axes], fronts: &[Axes]) -> Type {
    let fused = |axes: &Axes| -> Axes {
        let first = |axis: &AxisId| parts.iter().position(|part| part.as_slice().first() == Some(axis));
        axes.as_slice().iter().filter_map(first).map(|number| AxisId::from_u32(number as u32)).collect()
    };
    let mut small = Type { storage: fused(&ty.storage), ..ty.clone() };
    for (dim, front) in small.dims.iter_mut().zip(fronts) {
        dim.size /= site.mesh.size(front);
        dim.axes = fused(&dim.axes);
    }
    small.partial =
        ty.partial.as_ref().map(|partial| Partial { axes: fused(&partial.axes).sorted(), ..partial.clone() });
    small
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reshard::layout::{Layout, Place};
    use crate::reshard::{cheapest, plain};
    use cost::CPU;
    use ir::types::{DType, Dims};

    #[test]
    fn axes_that_move_alike_move_as_one() {
        let sizes: Vec<(String, u64)> = (0..8).map(|axis| (format!("x{axis}"), 2)).collect();
        let sizes: Vec<(&str, u64)> = sizes.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        let (mesh, dims) = (Mesh::new("m", &sizes), Dims::new());
        let site = Site { mesh: &mesh, dims: &dims, cluster: &CPU };
        let ty = Type::of(DType::F32, &[256, 256, 256]);
        let axes: Vec<AxisId> = mesh.tensor_axes().iter().collect();
        let lying = |places: [Place; 8]| {
            let whole = Layout::whole(&ty);
            axes.iter().zip(places).fold(whole, |layout, (&axis, place)| layout.with(axis, place)).on(&ty)
        };
        let [a, b, c] = [0, 1, 2].map(Place::Dim);
        let (whole, unreduced) = (Place::Whole, Place::Partial);
        let cases = [
            ([a, a, b, b, b, c, c, c], [a, a, c, c, c, b, b, b]),
            ([unreduced, unreduced, unreduced, unreduced, a, a, a, b], [b, b, b, b, a, a, a, c]),
            ([whole; 8], [a, a, a, b, b, b, c, c]),
            ([a, a, a, a, b, b, b, b], [whole; 8]),
        ];
        for (from, to) in cases {
            let (from, to) = (lying(from), lying(to));
            let steps = cheapest(&site, &from, &to, &Axes::none()).unwrap();
            assert_eq!(steps.last().unwrap().ty, to);
            let seconds = |steps: &[Step]| steps.iter().map(|step| step.seconds).sum::<f64>();
            assert!(seconds(&steps) <= seconds(&plain(&site, &from, &to).unwrap()), "{from:?} {to:?}");
            assert!(steps.len() <= 4, "{steps:?}");
        }
    }
}
