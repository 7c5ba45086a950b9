//! Reshards between any two shardings of a tensor: the cheapest sequence of collectives ([`cheapest`]), and the naive
//! path that gathers the tensor and slices it again ([`naive`]). [`ReshardCache`] shares paths among tensors of many
//! sizes.

#[cfg(test)]
mod brute_force;
mod cache;
mod fuse;
mod graph;
pub(crate) mod hops;
mod lists;
mod moves;
mod naive;
mod search;
pub(crate) mod sharding;
mod step_bound;
pub(crate) mod table;

pub use cache::ReshardCache;
pub use naive::naive;
pub use search::cheapest;

use cost::{GroupShape, Pattern, Platform};
use ir::mesh::{Axes, Mesh};
use ir::ops::Collective;
use ir::types::{Dim, Dims, Type};

/// Mesh, dims and platform against which a reshard is checked and costed.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The mesh.
    pub mesh: &'a Mesh,
    /// Named dims, which say which dims are indivisible.
    pub dims: &'a Dims,
    /// The platform whose figures decide.
    pub platform: &'a Platform<'a>,
    /// Factor by which all tensors have more bytes than their types say.
    scale: f64,
    /// The axes of which those of the mesh are made, if it is one of fused axes.
    whole: Option<WholeAxes<'a>>,
}

/// Axes of a mesh that others are made of.
#[derive(Clone, Copy)]
struct WholeAxes<'a> {
    mesh: &'a Mesh,
    /// By fused axis.
    parts: &'a [Axes],
}

/// One collective of a reshard path.
#[derive(Clone, PartialEq, Debug)]
pub struct ReshardStep {
    /// The collective.
    pub change: Collective,
    /// Type of the tensor after the step.
    pub ty: Type,
    /// Bytes that a rank receives.
    pub bytes: f64,
    /// Time on the site's platform, in seconds.
    pub seconds: f64,
}

impl ReshardStep {
    /// Weight of the step in the shortest-path search, in seconds. The weight is the time that ranks wait for each
    /// other, plus a nanosecond per step, which is less than any message takes. A local slice of any size weighs a
    /// picosecond: consecutive slices are one step, and bytes sliced off early need not be sent.
    pub fn weight(&self) -> f64 {
        match &self.change {
            Collective::AllSlice { .. } => SLICE,
            Collective::ToPartial { .. } => STEP,
            _ => self.seconds + STEP,
        }
    }
}

const STEP: f64 = 1e-9;
const SLICE: f64 = 1e-12;

/// Rounds to picoseconds, so that sums of the same terms in another order compare equal.
fn picoseconds(seconds: f64) -> u64 {
    (seconds * 1e12).round() as u64
}

/// Error if no sequence of collectives produces one type from the other. Either the sizes differ, or the target is an
/// unreduced maximum over axes that the source is not partial over.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no reshard path from {from} to {to}")]
pub struct NoPath {
    /// The source type.
    pub from: String,
    /// The target type.
    pub to: String,
}

impl<'a> Site<'a> {
    /// The site of reshards of tensors as their types say.
    pub fn new(mesh: &'a Mesh, dims: &'a Dims, platform: &'a Platform<'a>) -> Site<'a> {
        Site { mesh, dims, platform, scale: 1.0, whole: None }
    }

    /// Seconds of a pattern whose ranks have these bytes by their types.
    fn seconds(&self, pattern: Pattern, before: f64, after: f64, group: &GroupShape) -> f64 {
        self.platform.pattern_time(pattern, before * self.scale, after * self.scale, group)
    }

    /// The ranks that communicate along axes.
    fn group(&self, over: &Axes) -> GroupShape {
        let Some(WholeAxes { mesh, parts }) = self.whole else { return GroupShape::of(self.mesh, over) };
        let axes: Axes = over.iter().flat_map(|axis| parts[axis.as_u32() as usize].iter()).collect();
        GroupShape::of(mesh, &axes)
    }

    /// Step of a collective, if the mesh allows the resulting type.
    fn step(&self, change: Collective, operand: &Type) -> Option<ReshardStep> {
        let ty = change.result_type(operand).ok().filter(|ty| self.holds(ty))?;
        change.check_sizes(self.mesh, operand).ok()?;
        let (before, after) = (operand.local_bytes(self.mesh) as f64, ty.local_bytes(self.mesh) as f64);
        let pattern = Pattern::of(self.mesh, &change, operand);
        let bytes = pattern.received(self.mesh.size(change.over()), before, after);
        let seconds = self.seconds(pattern, before, after, &self.group(change.over()));
        Some(ReshardStep { change, ty, bytes, seconds })
    }

    fn holds(&self, ty: &Type) -> bool {
        ty.dims.iter().all(|dim| self.allows(dim, &dim.axes))
    }

    /// Returns whether the axes can shard the dim: at most as many shards as elements, even shards if the dim is indivisible,
    /// no axes if its size is dynamic.
    fn allows(&self, dim: &Dim, axes: &Axes) -> bool {
        let indivisible = dim.name.is_some_and(|name| self.dims[name].indivisible);
        let counted = dim.count.is_some() && !axes.is_empty();
        self.mesh.size(axes) <= dim.size && !counted && (!indivisible || self.mesh.is_even(dim.size, axes))
    }

    fn no_path(&self, from: &Type, to: &Type) -> NoPath {
        NoPath { from: format!("{from:?}"), to: format!("{to:?}") }
    }
}
