//! Types of tensors as one rank has them.

use ir::entity::PrimaryMap;
use ir::graph::{Stmt, ValueData};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::types::{Dim, Type};

/// Local type of a tensor on one rank: each dim at the size of its largest shard, flat-sharded tensors as one
/// contiguous range.
pub fn local_type(ty: &Type, mesh: &Mesh) -> Type {
    if !ty.storage.is_empty() {
        return Type::of(ty.dtype, &[ty.local_elements(mesh)]);
    }
    let mut local = ty.logical();
    for (dim, bound) in local.dims.iter_mut().zip(ty.local_bounds(mesh)) {
        *dim = Dim { size: bound, ..dim.clone() };
    }
    local
}

/// The local types of several tensors.
pub(crate) fn local_types(types: &[&Type], mesh: &Mesh) -> Vec<Type> {
    types.iter().map(|ty| local_type(ty, mesh)).collect()
}

/// Bytes of a statement's tensors that its op does not touch.
pub(crate) fn untouched(mesh: &Mesh, values: &PrimaryMap<Value, ValueData>, stmt: &Stmt) -> u64 {
    let [operands, results] = [&stmt.operands, &stmt.results]
        .map(|of| of.iter().map(|&value| local_type(&values[value].ty, mesh)).collect::<Vec<_>>());
    let (operands, results) = (operands.iter().collect::<Vec<_>>(), results.iter().collect::<Vec<_>>());
    stmt.op.def().map_or(0, |def| def.work(&operands, &results).untouched(&operands, &results))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::mesh::Axes;
    use ir::types::DType;

    #[test]
    fn local_shapes_are_bounds() {
        let mesh = Mesh::new("m", &[("dp", 2), ("tp", 3)]);
        let mut ty = Type::of(DType::F32, &[7, 4]);
        ty.dims[0].axes = mesh.tensor_axes();
        assert_eq!(local_type(&ty, &mesh).sizes(), [2, 4]);
        ty.dims[0].axes = Axes::none();
        ty.storage = mesh.lookup("tp").unwrap();
        assert_eq!(local_type(&ty, &mesh).sizes(), [10]);
    }
}
