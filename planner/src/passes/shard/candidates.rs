//! Possible shardings of a fully reduced tensor.

use super::turns::Turn;
use crate::reshard::sharding::{Place, Sharding};
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::types::{Dims, Type};

/// All shardings of a tensor that satisfy its stated type, in a turn, given the previous use of its axes. A closed dim
/// has exactly its stated axes. A dim sharded over several axes lists them in mesh order.
pub(super) fn shardings(mesh: &Mesh, dims: &Dims, ty: &Type, turn: &Turn, before: Option<&Sharding>) -> Vec<Sharding> {
    let stated = Sharding { unreduced: Axes::none(), ..Sharding::of(ty) };
    let free = mesh.tensor_axes().without(&stated.used());
    let mut fixed = Vec::new();
    for axis in free.iter().filter(|&axis| turn.fixed.contains(axis)) {
        let place = before.map_or(Place::Whole, |before| before.place(axis));
        if matches!(place, Place::Dim(dim) if ty.dims[dim].open) {
            fixed.push((axis, place));
        }
    }
    let open = (0..ty.rank()).filter(|&dim| ty.dims[dim].open).map(Place::Dim);
    let places: Vec<Place> = std::iter::once(Place::Whole).chain(open).collect();
    let mut found: Vec<Vec<(AxisId, Place)>> = vec![fixed];
    for unit in &turn.units {
        let unit = unit.intersection(&free);
        let mut longer = Vec::new();
        for known in &found {
            let next = places.iter().map(|&place| {
                let of_unit = unit.iter().map(|axis| (axis, place));
                known.iter().copied().chain(of_unit).collect::<Vec<_>>()
            });
            longer.extend(next.filter(|places| is_legal(mesh, dims, ty, &on_places(&stated, places))));
        }
        found = longer;
    }
    let mut shardings: Vec<Sharding> = found.iter().map(|places| on_places(&stated, places)).collect();
    shardings.extend(before.filter(|before| !shardings.contains(before) && holds(before, ty)).cloned());
    if shardings.is_empty() { vec![stated] } else { shardings }
}

/// Adds axes at their positions, in mesh order after the stated axes.
fn on_places(stated: &Sharding, places: &[(AxisId, Place)]) -> Sharding {
    let mut places = places.to_vec();
    places.sort_by_key(|(axis, _)| *axis);
    places.iter().fold(stated.clone(), |sharding, &(axis, place)| sharding.with(axis, place))
}

/// Returns whether a sharding matches the type's closed dims.
fn holds(sharding: &Sharding, ty: &Type) -> bool {
    let mut dims = sharding.dims.iter().zip(&ty.dims);
    sharding.unreduced.is_empty()
        && sharding.storage == ty.storage
        && dims.all(|(axes, dim)| if dim.open { dim.axes.is_prefix_of(axes) } else { *axes == dim.axes })
}

/// Returns whether the mesh allows the sharding: no dim has more shards than elements, indivisible dims are split evenly, and
/// dynamic dims are not sharded.
fn is_legal(mesh: &Mesh, dims: &Dims, ty: &Type, sharding: &Sharding) -> bool {
    ty.dims.iter().zip(&sharding.dims).all(|(dim, axes)| {
        let indivisible = dim.name.is_some_and(|name| dims[name].indivisible);
        let counted = dim.count.is_some() && !axes.is_empty();
        mesh.size(axes) <= dim.size && !counted && (!indivisible || mesh.is_even(dim.size, axes))
    })
}
