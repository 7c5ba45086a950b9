//! Sharding of a tensor, without its dtype and sizes.

use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::types::{PartialKind, Type};

/// Axes of each dim, of the storage, and of the partial sum.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Sharding {
    /// Axes per dim, major to minor.
    pub(crate) dims: Vec<Axes>,
    /// Axes that split the local elements into flat shards.
    pub(crate) storage: Axes,
    /// Axes that the tensor is partial over, in mesh order.
    pub(crate) unreduced: Axes,
}

/// Use of an axis by a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Replicated: all ranks along the axis have equal data.
    Whole,
    /// Shards this dim.
    Dim(usize),
    /// Shards the flat storage.
    Stored,
    /// Each rank along the axis has one term of a sum.
    Partial,
}

impl Sharding {
    /// Sharding of a type; an unreduced maximum counts as a sum.
    pub(crate) fn of(ty: &Type) -> Sharding {
        let dims = ty.dims.iter().map(|dim| dim.axes.clone()).collect();
        Sharding { dims, storage: ty.storage.clone(), unreduced: ty.partial_axes() }
    }

    /// Fully replicated sharding.
    pub(crate) fn whole(ty: &Type) -> Sharding {
        Sharding { dims: vec![Axes::none(); ty.rank()], storage: Axes::none(), unreduced: Axes::none() }
    }

    /// Closed type of a tensor with this sharding.
    pub(crate) fn on(&self, ty: &Type) -> Type {
        let mut ty =
            Type { storage: self.storage.clone(), ..ty.closed() }.partial_over(PartialKind::Sum, &self.unreduced);
        for (dim, axes) in ty.dims.iter_mut().zip(&self.dims) {
            dim.axes = axes.clone();
        }
        ty
    }

    /// Use of an axis.
    pub(crate) fn place(&self, axis: AxisId) -> Place {
        if self.storage.contains(axis) {
            return Place::Stored;
        }
        if self.unreduced.contains(axis) {
            return Place::Partial;
        }
        self.dims.iter().position(|axes| axes.contains(axis)).map_or(Place::Whole, Place::Dim)
    }

    /// Sharding with one more axis, which was unused.
    pub(crate) fn with(&self, axis: AxisId, place: Place) -> Sharding {
        let mut sharding = self.clone();
        match place {
            Place::Whole => {}
            Place::Dim(dim) => sharding.dims[dim].push(axis),
            Place::Stored => sharding.storage.push(axis),
            Place::Partial => sharding.unreduced = sharding.unreduced.union(&Axes::one(axis)).sorted(),
        }
        sharding
    }

    /// Axes that are not replicated.
    pub(crate) fn used(&self) -> Axes {
        self.dims.iter().fold(self.storage.union(&self.unreduced), |all, axes| all.union(axes))
    }

    /// Bytes of the largest shard of a tensor with this sharding.
    pub(crate) fn bytes(&self, ty: &Type, mesh: &Mesh) -> u64 {
        self.on(ty).local_bytes(mesh)
    }
}
