//! All shardings of a tensor on a mesh.

use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::types::{DType, PartialKind, Type};

/// Every sharding: each axis on a dim, a flat-shard axis, a partial axis or unused, in all orders. No dim has more shards than elements.
pub(crate) fn shardings(mesh: &Mesh, shape: &[u64], kinds: &[PartialKind]) -> Vec<Type> {
    let mut all = Vec::new();
    for &kind in kinds {
        let mut some = vec![Type::of(DType::F32, shape)];
        for axis in mesh.axes.keys() {
            some = some.iter().flat_map(|ty| with(ty, axis, kind)).collect();
        }
        some.retain(|ty| ty.dims.iter().all(|dim| mesh.size(&dim.axes) <= dim.size) && !all.contains(ty));
        all.extend(some);
    }
    all
}

/// The type with one axis more, in every place.
fn with(ty: &Type, axis: AxisId, kind: PartialKind) -> Vec<Type> {
    let mut all = vec![ty.clone(), ty.partial_over(kind, &ty.partial_axes().union(&Axes::one(axis)))];
    for dim in 0..ty.rank() {
        for axes in inserted(&ty.dims[dim].axes, axis) {
            let mut more = ty.clone();
            more.dims[dim].axes = axes;
            all.push(more);
        }
    }
    all.extend(inserted(&ty.storage, axis).map(|storage| Type { storage, ..ty.clone() }));
    all
}

fn inserted(axes: &Axes, axis: AxisId) -> impl Iterator<Item = Axes> {
    (0..=axes.len()).map(move |place| {
        let (before, after) = axes.as_slice().split_at(place);
        [before, &[axis], after].concat().into_iter().collect()
    })
}
