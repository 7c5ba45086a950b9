//! Axis fusion: a reshard over many axes as a reshard over few. Axes that stay at the front of an evenly sharded dim are removed, and the
//! dim becomes smaller. If the others may lie in many ways, those that are adjacent before and after become one axis.

use super::graph::arrangements;
use super::{ReshardStep, Site, WholeAxes};
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::ops::Collective;
use ir::types::{Partial, Type};

/// Largest number of axes for which all sequences of collectives are searched; the number of axis orders grows as a
/// factorial.
pub(super) const MOST: usize = 4;

/// Largest number of ways in which axes may lie on dims for which each axis moves by itself.
pub(super) const MOST_WAYS: u64 = 3000;

/// Limit for fused axes, without spare axes.
pub(super) const MOST_FUSED: usize = 7;

/// A reshard on a mesh of fused axes.
pub(super) struct Fused {
    /// Mesh of the fused axes.
    pub(super) mesh: Mesh,
    /// Types before and after, on the fused mesh.
    pub(super) ends: [Type; 2],
    /// Original axes of each fused axis.
    parts: Vec<Axes>,
    /// Axes that stay at the front of each dim.
    fronts: Vec<Axes>,
}

/// Position of an axis in a type.
#[derive(Clone, Copy, PartialEq)]
enum Spot {
    Whole,
    Partial,
    /// The dim (or the rank, for the storage), and the position in its axis list.
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

    /// Returns whether an axis at this position directly follows an axis at `other`.
    fn follows(self, other: Spot) -> bool {
        match (other, self) {
            (Spot::At(list, at), Spot::At(next, place)) => list == next && place == at + 1,
            (one, other) => one == other,
        }
    }
}

/// Positions of the axes before and after a reshard.
struct Adjacency<'a> {
    from: &'a Type,
    to: &'a Type,
}

impl Adjacency<'_> {
    /// Returns whether an axis directly follows another, before and after.
    fn follows(&self, next: AxisId, axis: AxisId) -> bool {
        [self.from, self.to].iter().all(|ty| Spot::of(ty, next).follows(Spot::of(ty, axis)))
    }

    /// First axis of a chain: one that follows no other axis. Unordered axes (replicated or partial) follow each other
    /// both ways.
    fn first(&self, left: &[AxisId]) -> Option<AxisId> {
        left.iter().copied().find(|&axis| {
            left.iter().all(|&other| {
                other == axis || !self.follows(axis, other) || (self.follows(other, axis) && axis < other)
            })
        })
    }
}

impl Fused {
    /// Fuses the axes of a reshard into the fewest axes that express it, unless they may lie in at most `ways` ways.
    pub(super) fn of(site: &Site<'_>, from: &Type, to: &Type, ways: u64) -> Fused {
        let fronts: Vec<Axes> = from.dims.iter().zip(&to.dims).map(|(old, new)| front(site, old, &new.axes)).collect();
        let stays = fronts.iter().fold(Axes::none(), |all, front| all.union(front));
        let moving: Vec<AxisId> = from.used_axes().union(&to.used_axes()).without(&stays).sorted().iter().collect();
        let moves_apart = arrangements(moving.len() as u32, from.rank() as u32) <= ways;
        let (mut parts, mut left): (Vec<Axes>, Vec<AxisId>) = match moves_apart {
            true => (moving.into_iter().map(Axes::one).collect(), Vec::new()),
            false => (Vec::new(), moving),
        };
        let adjacency = Adjacency { from, to };
        while let Some(first) = adjacency.first(&left) {
            let (mut chain, mut last) = (Axes::one(first), first);
            left.retain(|&axis| axis != first);
            while let Some(place) = left.iter().position(|&axis| adjacency.follows(axis, last)) {
                last = left.remove(place);
                chain.push(last);
            }
            parts.push(chain);
        }
        let sizes = parts.iter().enumerate().map(|(number, part)| (format!("a{number}"), site.mesh.size(part)));
        let sizes: Vec<(String, u64)> = sizes.collect();
        let mesh = Mesh::new("fused", &sizes.iter().map(|(name, size)| (name.as_str(), *size)).collect::<Vec<_>>());
        let ends = [from, to].map(|ty| on_parts(site, ty, &parts, &fronts));
        Fused { mesh, ends, parts, fronts }
    }

    /// The site of the fused axes, whose groups are those of the original mesh.
    pub(super) fn site<'a>(&'a self, site: &Site<'a>) -> Site<'a> {
        let whole = Some(WholeAxes { mesh: site.mesh, parts: &self.parts });
        Site { mesh: &self.mesh, whole, ..*site }
    }

    /// Steps on the original mesh for steps on the fused mesh; `None` if an intermediate sharding is not allowed.
    pub(super) fn steps(&self, site: &Site<'_>, from: &Type, fused: &[Collective]) -> Option<Vec<ReshardStep>> {
        let mut steps: Vec<ReshardStep> = Vec::with_capacity(fused.len());
        for change in fused {
            let operand = steps.last().map_or(from, |step| &step.ty);
            let change = self.change(change.clone(), operand);
            steps.push(site.step(change, operand)?);
        }
        Some(steps)
    }

    /// Collective on the original mesh for one on the fused mesh.
    fn change(&self, fused: Collective, operand: &Type) -> Collective {
        match fused {
            Collective::AllGather { dim, over } => Collective::AllGather { dim, over: self.original(&over) },
            Collective::ReduceScatter { dim, over } => Collective::ReduceScatter { dim, over: self.original(&over) },
            Collective::AllReduce { over } => Collective::AllReduce { over: self.original(&over).sorted() },
            Collective::AllToAll { from, to, over, ragged } => {
                Collective::AllToAll { from, to, over: self.original(&over), ragged }
            }
            Collective::Permute { dims, .. } => {
                let dims = self.fronts.iter().zip(&dims).map(|(front, axes)| front.union(&self.original(axes)));
                Collective::permute(operand, dims.collect())
            }
            Collective::Shift { dim, by, over } => Collective::Shift { dim, by, over: self.original(&over) },
            Collective::AllSlice { dims, over } if dims.is_empty() => Collective::all_slice(None, self.original(&over)),
            Collective::AllSlice { dims, .. } => {
                Collective::slice(dims.iter().map(|axes| self.original(axes)).collect())
            }
            Collective::ToPartial { dim: None, over } => {
                Collective::ToPartial { dim: None, over: self.original(&over).sorted() }
            }
            Collective::ToPartial { dim, over } => Collective::ToPartial { dim, over: self.original(&over) },
        }
    }

    /// Original axes of a list of fused axes.
    fn original(&self, fused: &Axes) -> Axes {
        fused.iter().flat_map(|axis| self.parts[axis.as_u32() as usize].iter()).collect()
    }
}

/// Longest common prefix of a dim's axis lists that shards the dim evenly.
fn front(site: &Site<'_>, dim: &ir::types::Dim, after: &Axes) -> Axes {
    let mut front = dim.axes.common_prefix(after);
    while !site.mesh.is_even(dim.size, &front) {
        front.pop();
    }
    front
}

/// Type on the fused axes, without the front axes of each dim.
fn on_parts(site: &Site<'_>, ty: &Type, parts: &[Axes], fronts: &[Axes]) -> Type {
    let mut small = Type { storage: fused(&ty.storage, parts), ..ty.clone() };
    for (dim, front) in small.dims.iter_mut().zip(fronts) {
        dim.size /= site.mesh.size(front);
        dim.axes = fused(&dim.axes, parts);
    }
    small.partial =
        ty.partial.as_ref().map(|partial| Partial { axes: fused(&partial.axes, parts).sorted(), ..partial.clone() });
    small
}

/// Fused axes whose first original axes are among these.
fn fused(axes: &Axes, parts: &[Axes]) -> Axes {
    let numbers = axes.as_slice().iter().filter_map(|axis| {
        // The front axes of a dim are no part.
        parts.iter().position(|part| part.as_slice().first() == Some(axis))
    });
    numbers.map(|number| AxisId::from_u32(number as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reshard::sharding::{Place, Sharding};
    use crate::reshard::{cheapest, naive};
    use cost::PROGRAM;
    use ir::types::{DType, Dims};

    #[test]
    fn axes_that_move_alike_move_as_one() {
        let sizes: Vec<(String, u64)> = (0..8).map(|axis| (format!("x{axis}"), 2)).collect();
        let sizes: Vec<(&str, u64)> = sizes.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        let (mesh, dims) = (Mesh::new("m", &sizes), Dims::new());
        let site = Site::new(&mesh, &dims, &PROGRAM);
        let ty = Type::of(DType::F32, &[256, 256, 256]);
        let axes: Vec<AxisId> = mesh.tensor_axes().iter().collect();
        let sharded = |places: [Place; 8]| {
            let whole = Sharding::whole(&ty);
            axes.iter().zip(places).fold(whole, |sharding, (&axis, place)| sharding.with(axis, place)).on(&ty)
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
            let (from, to) = (sharded(from), sharded(to));
            let steps = cheapest(&site, &from, &to, &Axes::none()).unwrap();
            assert_eq!(steps.last().unwrap().ty, to);
            let seconds = |steps: &[ReshardStep]| steps.iter().map(|step| step.seconds).sum::<f64>();
            assert!(seconds(&steps) <= seconds(&naive(&site, &from, &to).unwrap()), "{from:?} {to:?}");
            assert!(steps.len() <= 4, "{steps:?}");
        }
    }
}
