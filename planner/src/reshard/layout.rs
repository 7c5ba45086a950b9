//! How a tensor lies, apart from what tensor it is.

use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::types::{PartialKind, Type};

/// The axes of each dim, of the storage, and of the sum that is owed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Layout {
    /// Per dim, major to minor.
    pub(crate) dims: Vec<Axes>,
    /// Over which the local elements are cut into runs.
    pub(crate) storage: Axes,
    /// In mesh order.
    pub(crate) unreduced: Axes,
}

/// Where an axis stands on a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Nowhere: each of its ranks has the same.
    Whole,
    /// On a dim.
    Dim(usize),
    /// On the storage.
    Stored,
    /// Each of its ranks has a part of a sum.
    Partial,
}

impl Layout {
    /// That of a type; a maximum that is owed counts as a sum.
    pub(crate) fn of(ty: &Type) -> Layout {
        let dims = ty.dims.iter().map(|dim| dim.axes.clone()).collect();
        Layout { dims, storage: ty.storage.clone(), unreduced: ty.partial_axes() }
    }

    /// Whole on all ranks.
    pub(crate) fn whole(ty: &Type) -> Layout {
        Layout { dims: vec![Axes::none(); ty.rank()], storage: Axes::none(), unreduced: Axes::none() }
    }

    /// The type of a tensor that lies so, closed.
    pub(crate) fn on(&self, ty: &Type) -> Type {
        let mut ty =
            Type { storage: self.storage.clone(), ..ty.closed() }.partial_over(PartialKind::Sum, &self.unreduced);
        for (dim, axes) in ty.dims.iter_mut().zip(&self.dims) {
            dim.axes = axes.clone();
        }
        ty
    }

    /// Where an axis stands.
    pub(crate) fn place(&self, axis: AxisId) -> Place {
        if self.storage.contains(axis) {
            return Place::Stored;
        }
        if self.unreduced.contains(axis) {
            return Place::Partial;
        }
        self.dims.iter().position(|axes| axes.contains(axis)).map_or(Place::Whole, Place::Dim)
    }

    /// The same with one more axis, which stood nowhere.
    pub(crate) fn with(&self, axis: AxisId, place: Place) -> Layout {
        let mut layout = self.clone();
        match place {
            Place::Whole => {}
            Place::Dim(dim) => layout.dims[dim].push(axis),
            Place::Stored => layout.storage.push(axis),
            Place::Partial => layout.unreduced = layout.unreduced.union(&Axes::one(axis)).sorted(),
        }
        layout
    }

    /// The axes that stand somewhere.
    pub(crate) fn used(&self) -> Axes {
        self.dims.iter().fold(self.storage.union(&self.unreduced), |all, axes| all.union(axes))
    }

    /// The most bytes that a rank holds of a tensor that lies so.
    pub(crate) fn bytes(&self, ty: &Type, mesh: &Mesh) -> u64 {
        self.on(ty).local_bytes(mesh)
    }
}
