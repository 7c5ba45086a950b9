//! Time of statements and sections on local shapes.

use crate::cluster::{Cluster, Device};
use crate::link_traffic::Traffic;
use ir::entity::PrimaryMap;
use ir::fused::Fused;
use ir::graph::{Stmt, ValueData};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::{Collective, Op, OpDef};
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

/// Seconds of an op on one rank's tensors: the maximum of compute time and memory time.
pub fn seconds_of(device: &Device, op: &dyn OpDef, operands: &[&Type], results: &[&Type]) -> f64 {
    let work = op.work(operands, results);
    let compute = work.flops as f64 / peak_flops(device, operands, results);
    compute.max(work.bytes as f64 / device.memory_bandwidth)
}

/// Operations per second of a device on the first floats of an op.
fn peak_flops(device: &Device, operands: &[&Type], results: &[&Type]) -> f64 {
    let dtype = operands.iter().chain(results).map(|ty| ty.dtype).find(|dtype| dtype.is_float());
    dtype.map_or(device.flops_f32, |dtype| device.flops(dtype))
}

/// Seconds of a statement on a mesh, for values with sharded types. A `reshard` that no pass has replaced costs
/// nothing.
pub fn seconds_of_stmt(cluster: &Cluster, mesh: &Mesh, values: &PrimaryMap<Value, ValueData>, stmt: &Stmt) -> f64 {
    let types = |of: &[Value]| of.iter().map(|&v| &values[v].ty).collect::<Vec<_>>();
    let (operands, results) = (types(&stmt.operands), types(&stmt.results));
    match &stmt.op {
        Op::Collective(collective) => seconds_of_change(cluster, mesh, collective, &operands, &results),
        Op::Reshard => 0.0,
        Op::Kernel(_) => {
            let local = |types: &[&Type]| types.iter().map(|ty| local_type(ty, mesh)).collect::<Vec<_>>();
            let (operands, results) = (local(&operands), local(&results));
            let moved = results.iter().map(Type::bytes).sum::<u64>() as f64;
            let added = if stmt.accumulate { moved / cluster.device.memory_bandwidth } else { 0.0 };
            let (operands, results) = (operands.iter().collect::<Vec<_>>(), results.iter().collect::<Vec<_>>());
            stmt.op.def().map_or(0.0, |def| seconds_of(&cluster.device, def, &operands, &results)) + added
        }
    }
}

/// Seconds of a group of statements: what comes from elsewhere is read once, what the group leaves is written once. Beside a product,
/// this is in addition to its own time.
pub fn seconds_of_group(cluster: &Cluster, mesh: &Mesh, values: &PrimaryMap<Value, ValueData>, fused: &Fused) -> f64 {
    let local = |of: &[Value]| of.iter().map(|&v| local_type(&values[v].ty, mesh)).collect::<Vec<_>>();
    let compute = |stmt: &Stmt| {
        let (operands, results) = (local(&stmt.operands), local(&stmt.results));
        let (operands, results) = (operands.iter().collect::<Vec<_>>(), results.iter().collect::<Vec<_>>());
        let work = stmt.op.def().map(|def| def.work(&operands, &results));
        work.map_or(0.0, |work| work.flops as f64 / peak_flops(&cluster.device, &operands, &results))
    };
    let bytes: u64 = local(&fused.reads()).iter().chain(&local(&fused.outs)).map(Type::bytes).sum();
    let bytes = bytes.saturating_sub(fused.stmts.iter().map(|stmt| untouched(mesh, values, stmt)).sum());
    if let Some(product) = fused.product() {
        let own: u64 = local(&product.operands).iter().chain(&local(&product.results)).map(Type::bytes).sum();
        let others: f64 = fused.stmts[1..].iter().map(compute).sum();
        let others = others.max(bytes.saturating_sub(own) as f64 / cluster.device.memory_bandwidth);
        return seconds_of_stmt(cluster, mesh, values, product) + others;
    }
    let compute: f64 = fused.stmts.iter().map(compute).sum();
    compute.max(bytes as f64 / cluster.device.memory_bandwidth)
}

/// Bytes of a statement's tensors that its op does not touch.
pub(crate) fn untouched(mesh: &Mesh, values: &PrimaryMap<Value, ValueData>, stmt: &Stmt) -> u64 {
    let local = |of: &[Value]| of.iter().map(|&v| local_type(&values[v].ty, mesh)).collect::<Vec<_>>();
    let (operands, results) = (local(&stmt.operands), local(&stmt.results));
    let (operands, results) = (operands.iter().collect::<Vec<_>>(), results.iter().collect::<Vec<_>>());
    stmt.op.def().map_or(0, |def| def.work(&operands, &results).untouched(&operands, &results))
}

/// Seconds of a collective on tensors with sharded types; the tensors of a bucket are sent together.
pub fn seconds_of_change(
    cluster: &Cluster,
    mesh: &Mesh,
    collective: &Collective,
    operands: &[&Type],
    results: &[&Type],
) -> f64 {
    let tensors = collective.moved(operands).iter().zip(results);
    let traffic = tensors.map(|(before, after)| Traffic::of(cluster, mesh, collective, before, after));
    traffic.fold(Traffic::default(), Traffic::with).seconds(cluster, mesh, collective.over())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::CPU;
    use ir::mesh::Axes;
    use ir::ops::Einsum;
    use ir::types::DType;

    #[test]
    fn a_matmul_is_bound_by_compute_or_by_memory() {
        let einsum = Einsum::new("m k, k n -> m n").unwrap();
        let seconds = |m: u64, k: u64, n: u64| {
            let [a, b, c] = [[m, k], [k, n], [m, n]].map(|sizes| Type::of(DType::F32, &sizes));
            seconds_of(&CPU.device, &einsum, &[&a, &b], &[&c])
        };
        assert_eq!(seconds(1024, 1024, 1024), 2.0 * 1024f64.powi(3) / CPU.device.flops_f32);
        assert_eq!(seconds(1, 1024, 1024), 4.0 * (1024.0 * 1024.0 + 2048.0) / CPU.device.memory_bandwidth);
    }

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
