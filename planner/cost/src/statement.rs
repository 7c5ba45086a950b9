//! Time of a program's statements on one rank: the kernels of [`Platform`], on tensors in the formats that their types state.

use crate::collective_time::CollectiveKind;
use crate::group_shape::GroupShape;
use crate::local_types::{local_type, local_types, untouched};
use crate::pattern::Pattern;
use crate::platform::{Format, HALF, Platform, Recipe, SINGLE};
use crate::profile::{ProductShape, attention_shape, behind_product};
use ir::dim_role::DimRole;
use ir::entity::PrimaryMap;
use ir::fused::Fused;
use ir::graph::{Model, Stmt, ValueData};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::{Collective, KernelOp, Op};
use ir::program::Transfer;
use ir::types::{DType, Dims, Type};

/// Statements' surroundings: what their time depends on, next to the platform.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The mesh of the devices.
    pub mesh: &'a Mesh,
    /// The named dims, whose roles tell products of experts.
    pub dims: &'a Dims,
    /// The values of the statements, with sharded types.
    pub values: &'a PrimaryMap<Value, ValueData>,
}

impl<'a> Scope<'a> {
    /// Values of a block or a body of a model.
    pub fn of(model: &'a Model, values: &'a PrimaryMap<Value, ValueData>) -> Scope<'a> {
        Scope { mesh: &model.mesh, dims: &model.dims, values }
    }

    /// Bytes of values on one rank.
    fn bytes(&self, values: &[Value]) -> f64 {
        values.iter().map(|&value| local_type(&self.values[value].ty, self.mesh).bytes() as f64).sum()
    }

    fn types(&self, values: &[Value]) -> Vec<&Type> {
        values.iter().map(|&value| &self.values[value].ty).collect()
    }
}

impl Platform<'_> {
    /// Seconds of a statement on one rank. A `reshard` or a composite op that no pass has replaced takes none.
    pub fn stmt(&self, scope: Scope<'_>, stmt: &Stmt) -> f64 {
        match &stmt.op {
            Op::Collective(collective) => {
                self.change(scope.mesh, collective, &scope.types(&stmt.operands), &scope.types(&stmt.results))
            }
            Op::Kernel(op) => {
                let operands = local_types(&scope.types(&stmt.operands), scope.mesh);
                let results = local_types(&scope.types(&stmt.results), scope.mesh);
                self.op(scope.dims, op, &operands, &results, stmt.accumulate)
            }
            Op::Reshard => 0.0,
        }
    }

    /// Seconds of a group of statements, which is one kernel: values from elsewhere are read once, values that it leaves are written
    /// once. A kernel of its own follows a product, unless the stack's products write what follows them (`epilogue`), or leave a sum
    /// (`product_sum`).
    pub fn group(&self, scope: Scope<'_>, fused: &Fused) -> f64 {
        let untouched: u64 = fused.stmts.iter().map(|stmt| untouched(scope.mesh, scope.values, stmt)).sum();
        let moved = scope.bytes(&fused.reads()) + scope.bytes(&fused.outs) - untouched as f64;
        let on = self.on_types(scope.types(&fused.reads()));
        let Some(product) = fused.product() else { return on.memory_bound(moved.max(0.0)) };
        let result = scope.bytes(&product.results);
        let stmts: Vec<&Stmt> = fused.stmts.iter().collect();
        let kernels = self.stack.traits.kernels.fused;
        let behind = behind_product(kernels, &stmts, product, result, |value| fused.outs.contains(&value));
        self.stmt(scope, product) + on.memory_bound((moved - scope.bytes(&product.operands) + behind.bytes).max(0.0))
    }

    /// Seconds of an op on one rank's tensors, of which the types state the sizes there. With `accumulate` its result is added to one
    /// that is there.
    pub fn op(&self, dims: &Dims, op: &KernelOp, operands: &[Type], results: &[Type], accumulate: bool) -> f64 {
        let on = self.on_types(operands.iter().chain(results));
        if let Some(shape) = ProductShape::of(op, operands) {
            let of_experts = operands.iter().all(|ty| ty.has_role(DimRole::Experts, dims));
            return on.product(shape, format(operands[0].dtype), accumulate, of_experts);
        }
        if let Some((shape, backward)) = attention_shape(op, operands) {
            return on.attention(&shape, backward);
        }
        let def = op.def();
        if def.facts().is_view || matches!(op, KernelOp::Composite(_) | KernelOp::Iota(_)) {
            return 0.0;
        }
        let sums = if accumulate { results.iter().map(Type::bytes).sum() } else { 0 };
        let (operands, results) = (operands.iter().collect::<Vec<_>>(), results.iter().collect::<Vec<_>>());
        on.memory_bound((def.work(&operands, &results).bytes + sums) as f64)
    }

    /// Seconds of a product whose operands are there in the format in which they are read.
    fn product(&self, shape: ProductShape, format: Format, accumulate: bool, of_experts: bool) -> f64 {
        let ProductShape { batch, m, n, k } = shape;
        let seconds = self.read_matmul(batch, m, n, k, format, accumulate);
        if of_experts { seconds / self.grouped_share(format) } else { seconds }
    }

    /// Platform for tensors of the first of these types that are numbers.
    fn on_types<'t>(&self, types: impl IntoIterator<Item = &'t Type>) -> Platform<'_> {
        let first = types.into_iter().map(|ty| ty.dtype).find(|dtype| dtype.is_float());
        let recipe: &Recipe = if first.is_some_and(|dtype| dtype != DType::F32) { &HALF } else { &SINGLE };
        Platform { recipe, ..*self }
    }

    /// Seconds of a collective on tensors with sharded types; the tensors of a bucket are sent together.
    pub fn change(&self, mesh: &Mesh, collective: &Collective, operands: &[&Type], results: &[&Type]) -> f64 {
        let (mut before, mut after, mut pattern) = (0.0, 0.0, Pattern::Local);
        for (operand, result) in collective.moved(operands).iter().zip(results) {
            before += sent_bytes(mesh, collective, operand);
            after += sent_bytes(mesh, collective, result);
            pattern = Pattern::of(mesh, collective, operand);
        }
        self.pattern_time(pattern, before, after, &GroupShape::of(mesh, collective.over()))
    }

    /// Seconds of a transfer of some bytes between pipeline ranks. A sum is an all-reduce; a copy to others passes along them, piece by
    /// piece. Copies to host memory take what [`Cluster::host_copy`](crate::Cluster::host_copy) states.
    pub fn transfer(&self, mesh: &Mesh, transfer: &Transfer, bytes: u64) -> f64 {
        match transfer {
            Transfer::Send { .. } | Transfer::Recv { .. } => self.message(mesh, bytes),
            Transfer::Sum { ranks } | Transfer::SumGradient { ranks, .. } => self.sum(mesh, bytes, ranks.len() as u64),
            Transfer::ShareParam { ranks, .. } => {
                self.message(mesh, bytes) + ranks.len().saturating_sub(2) as f64 * self.message(mesh, 1)
            }
            Transfer::Offload | Transfer::Load | Transfer::LoadStates { .. } | Transfer::StoreStates { .. } => {
                self.cluster.host_copy(bytes)
            }
        }
    }

    /// Seconds of a message from one pipeline rank to the next.
    pub fn message(&self, mesh: &Mesh, bytes: u64) -> f64 {
        self.time(CollectiveKind::Send, bytes as f64, &GroupShape::of_neighbours(mesh, 2))
    }

    /// Seconds of the sum of equal tensors of some pipeline ranks.
    pub fn sum(&self, mesh: &Mesh, bytes: u64, ranks: u64) -> f64 {
        self.time(CollectiveKind::AllReduce, bytes as f64, &GroupShape::of_neighbours(mesh, ranks))
    }
}

/// Format of a product's operands of a type.
fn format(dtype: DType) -> Format {
    match dtype {
        DType::F32 | DType::I32 => Format::F32,
        DType::BF16 | DType::F16 => Format::Half,
        DType::F8E4M3 | DType::F8E5M2 => Format::F8,
    }
}

/// Bytes of a tensor on one rank that a collective sends. Of rows of which only some are there, these.
fn sent_bytes(mesh: &Mesh, collective: &Collective, ty: &Type) -> f64 {
    let whole = ty.local_bytes(mesh);
    collective.ragged().map_or(whole, |ragged| ragged.mean_bytes(ty, whole)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets::CLUSTERS;
    use crate::{CPU, Cluster};
    use ir::ops::{Einsum, Ragged};

    fn seconds(cluster: &Cluster, einsum: Einsum, operands: &[Type], result: &Type) -> f64 {
        let (platform, op) = (Platform::of_program(cluster), KernelOp::Einsum(einsum));
        platform.op(&Dims::default(), &op, operands, std::slice::from_ref(result), false)
    }

    fn product() -> Einsum {
        Einsum::new("e c h, e h m -> e c m").unwrap()
    }

    #[test]
    fn a_product_of_chunks_takes_the_time_of_their_filled_rows() {
        let of = |rows, ragged: Option<Ragged>| {
            let [x, w, y] =
                [[4, rows, 512], [4, 512, 1024], [4, rows, 1024]].map(|sizes| Type::of(DType::BF16, &sizes));
            let counts = ragged.map(|_| Type::of(DType::I32, &[4]));
            let operands: Vec<Type> = [x, w].into_iter().chain(counts).collect();
            seconds(&CPU, Einsum { ragged, ..product() }, &operands, &y)
        };
        assert_eq!(of(4096, Some(Ragged { rows: 1, mean: 1024 })), of(1024, None));
        assert!(of(4096, None) > 3.0 * of(1024, None));
    }

    #[test]
    fn a_product_with_scales_takes_the_time_of_a_product() {
        for cluster in CLUSTERS.iter().map(|preset| Cluster::find(preset.name).unwrap()) {
            let [x, w] = [[4, 2048, 4096], [4, 4096, 8192]].map(|sizes| Type::of(DType::F8E4M3, &sizes));
            let [xs, ws] = [[4, 2048, 32], [4, 32, 64]].map(|sizes| Type::of(DType::F32, &sizes));
            let y = Type::of(DType::BF16, &[4, 2048, 8192]);
            let scaled = seconds(&cluster, product().scaled(DType::BF16).unwrap(), &[x.clone(), w.clone(), xs, ws], &y);
            assert_eq!(scaled, seconds(&cluster, product(), &[x, w], &y), "{}", cluster.name);
        }
    }
}
