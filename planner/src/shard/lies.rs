//! Where a tensor may lie when nothing is owed on it.

use crate::reshard::layout::{Layout, Place};
use ir::mesh::{Axes, Mesh};
use ir::types::{Dims, Type};

/// All layouts of a tensor that hold what its type states: a dim that is not open has the axes that stand there. In dims that
/// are cut over several axes these stand in mesh order.
pub(super) fn layouts(mesh: &Mesh, dims: &Dims, ty: &Type) -> Vec<Layout> {
    let stated = Layout { owed: Axes::none(), ..Layout::of(ty) };
    let free = mesh.tensor_axes().without(&stated.used());
    let mut found = vec![stated];
    for axis in free.iter() {
        let cut = |layout: &Layout| {
            let open = (0..ty.rank()).filter(|&dim| ty.dims[dim].open).map(Place::Dim);
            let places = std::iter::once(Place::Whole).chain(open);
            places.map(|place| layout.with(axis, place)).filter(|layout| is_legal(mesh, dims, ty, layout)).collect()
        };
        found = found.iter().flat_map(|layout| -> Vec<Layout> { cut(layout) }).collect();
    }
    found
}

/// No dim has more shards than elements, an exact one even shards, one of unknown size none.
fn is_legal(mesh: &Mesh, dims: &Dims, ty: &Type, layout: &Layout) -> bool {
    ty.dims.iter().zip(&layout.dims).all(|(dim, axes)| {
        let exact = dim.name.is_some_and(|name| dims[name].exact);
        let counted = dim.count.is_some() && !axes.is_empty();
        mesh.size(axes) <= dim.size && !counted && (!exact || mesh.is_even(dim.size, axes))
    })
}
