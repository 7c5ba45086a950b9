//! Scans on one rank: their products chunk by chunk, and the states between chunks.
//!
//! No measurement of a scan's kernel is in the model. The products of a chunk have the speed of products of their sizes, which read and write
//! memory, as kernels that go through chunks in phases do. Those that go from
//! state to state run on as many multiprocessors as there are heads and blocks of columns (Dao and Gu 2024, section 6; Yang et al. 2024,
//! section 3).

use super::local::Local;
use super::site::Site;
use crate::platform::Format;
use ir::graph::Stmt;
use ir::ops::{KernelOp, Op, ScanKind};
use ir::types::{Dim, Type};

/// Columns of a state that one block of threads takes.
const COLUMNS: f64 = 32.0;

/// A pass of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    Forward,
    Backward,
    /// The state behind each block, and its transition.
    State,
    /// The gradient by the state before each block.
    StateBackward,
    /// States from block to block.
    Carry,
}

/// A scan, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan {
    kind: ScanKind,
    chunk: f64,
    pass: Pass,
    /// Sizes b, s, g, r, c of values, and that of keys.
    values: [f64; 5],
    key: f64,
    by_key: bool,
}

/// Products of one chunk of one head: rows, columns and depth of each, and whether it goes from state to state.
struct ChunkProduct {
    size: [f64; 3],
    /// How often it is computed for a head of values: less than once if heads share it.
    times: f64,
    is_of_states: bool,
}

impl ChunkProduct {
    /// A product of rows of a chunk.
    fn of_rows(size: [f64; 3], times: f64) -> ChunkProduct {
        ChunkProduct { size, times, is_of_states: false }
    }

    /// A product that adds to states.
    fn of_states(size: [f64; 3], times: f64) -> ChunkProduct {
        ChunkProduct { size, times, is_of_states: true }
    }
}

/// The scan of a statement on one rank, or its part; `None` for other statements.
pub(super) fn local(local: &Local<'_>, stmt: &Stmt) -> Option<Scan> {
    of_stmt(local, stmt, |dim| local.size(dim))
}

/// The same on unsharded tensors, of a forward: what ranks compute besides, to share a sequence, is no work of the model.
pub(super) fn logical(local: &Local<'_>, stmt: &Stmt) -> Option<Scan> {
    of_stmt(local, stmt, |dim| dim.size as f64).filter(|scan| scan.pass == Pass::Forward)
}

fn of_stmt(local: &Local<'_>, stmt: &Stmt, size: impl Fn(&Dim) -> f64) -> Option<Scan> {
    let Op::Kernel(op) = &stmt.op else { return None };
    let sizes =
        |place: usize| stmt.operands.get(place).map(|&value| local.dims(value).iter().map(&size).collect::<Vec<f64>>());
    let last = stmt.operands.len() - 1;
    let (settings, pass, [keys, values, decay]) = match op {
        KernelOp::Scan(op) => (op.0, Pass::Forward, [1, 2, 3]),
        KernelOp::ScanGrad(op) => (op.0, Pass::Backward, [1, 2, 3]),
        KernelOp::ScanState(op) => (op.0, Pass::State, [0, 1, 2]),
        KernelOp::ScanDstart(op) => (op.0, Pass::StateBackward, [1, last, 2]),
        KernelOp::Carry(_) => return carry(sizes(0)?, &sizes(1)?),
        _ => return None,
    };
    let (keys, values, by_key) = (sizes(keys)?, <[f64; 5]>::try_from(sizes(values)?).ok()?, sizes(decay)?.len() == 5);
    let rows = settings.block.map_or(values[1], |block| block as f64);
    let chunk = rows.min(settings.chunk as f64).max(1.0);
    Some(Scan { kind: settings.kind, chunk, pass, values, key: *keys.last()?, by_key })
}

/// States `[b, n, g, r, k, c]` from block to block: of each token a block, for which a product is as long as a transition has rows.
fn carry(states: Vec<f64>, through: &[f64]) -> Option<Scan> {
    let [b, n, g, r, k, c] = <[f64; 6]>::try_from(states).ok()?;
    let kind = if through.len() == 6 { ScanKind::Delta } else { ScanKind::Linear };
    Some(Scan { kind, chunk: 1.0, pass: Pass::Carry, values: [b, n, g, r, c], key: k, by_key: through.len() == 5 })
}

/// Model FLOPs of a forward scan on tensors of these types, by the field's count; none for other ops.
pub(crate) fn model_flops(op: &KernelOp, operands: &[Type]) -> Option<f64> {
    let KernelOp::Scan(scan) = op else { return None };
    let [_, keys, values, ..] = operands else { return None };
    let key = keys.dims.last()?.size as f64;
    Some(counted(scan.0.kind) * key * values.dims.iter().map(|dim| dim.size as f64).product::<f64>())
}

/// Model FLOPs of a token for each element of a state: decay, the sum and its product, and the reading; the delta rule reads twice
/// (Megatron-LM, `num_floating_point_operations` in megatron/training/training.py).
fn counted(kind: ScanKind) -> f64 {
    match kind {
        ScanKind::Linear | ScanKind::Selective => 7.0,
        ScanKind::Delta => 8.0,
    }
}

impl Scan {
    /// Model FLOPs of the forward.
    pub(super) fn counted(&self) -> f64 {
        counted(self.kind) * self.key * self.values.iter().product::<f64>()
    }

    /// Seconds of its kernels.
    pub(super) fn seconds(&self, site: &Site<'_>) -> f64 {
        let [b, s, g, r, c] = self.values;
        let (tokens, platform) = (b * s * g * r, site.platform);
        if let (ScanKind::Selective, Some(operations)) = (self.kind, self.pass.selective()) {
            let flops = tokens * self.key * c * operations;
            return (flops / platform.cluster.device.flops_f32).max(platform.memory_bound(self.bytes(site)));
        }
        let blocks = b * g * r * (c / COLUMNS).ceil();
        let busy = (blocks / platform.cluster.device.sms as f64).min(1.0);
        let chunks = tokens / self.chunk;
        let products = self.products().into_iter().map(|product| {
            let [m, n, k] = product.size;
            let seconds = platform.matmul(chunks * product.times, m, n, k, Format::Half, false);
            if product.is_of_states { seconds / busy } else { seconds }
        });
        products.sum::<f64>().max(platform.memory_bound(self.bytes(site)))
    }

    /// Number of kernels: what chunks need, the states, and the results; in the backward the states again, and their gradients.
    pub(super) fn kernels(&self) -> f64 {
        match (self.kind, self.pass) {
            (ScanKind::Selective, _) | (_, Pass::Carry) => 1.0,
            (_, Pass::State | Pass::StateBackward) => 2.0,
            (_, Pass::Forward) => 3.0,
            (_, Pass::Backward) => 5.0,
        }
    }

    /// Bytes of operands and results.
    fn bytes(&self, site: &Site<'_>) -> f64 {
        let [b, s, g, r, c] = self.values;
        let (wide, activation) = (Format::F32.bytes(), site.platform.recipe.activation);
        let by_key = if self.by_key { self.key } else { 1.0 };
        if self.pass == Pass::Carry {
            let of_keys = if self.kind == ScanKind::Delta { self.key * self.key } else { by_key };
            return b * s * g * r * wide * (2.0 * self.key * c + of_keys);
        }
        let decays = by_key + if self.kind == ScanKind::Delta { 1.0 } else { 0.0 };
        let (keys, values) = match self.pass {
            Pass::State => (1.0, 1.0),
            _ => (2.0, 2.0),
        };
        let heads = activation * (keys * self.key + values * r * c) + wide * r * decays;
        b * s * g * heads * if self.pass == Pass::Backward { 2.0 } else { 1.0 }
    }

    /// The products of a chunk of rows; triangles are not halved.
    fn products(&self) -> Vec<ChunkProduct> {
        let (k, c, rows) = (self.key, self.values[4], self.chunk);
        let shared = if self.by_key { 1.0 } else { 1.0 / self.values[3].max(1.0) };
        let is_delta = self.kind == ScanKind::Delta;
        let (pairs, values, reads) = ([rows, rows, k], [rows, c, rows], [rows, c, k]);
        let of_rows = ChunkProduct::of_rows;
        let mut products = match (is_delta, self.pass) {
            (false, Pass::Forward) => vec![of_rows(pairs, shared), of_rows(values, 1.0), of_rows(reads, 1.0)],
            (true, Pass::Forward) => vec![of_rows(pairs, 2.0 * shared), of_rows(values, 2.0), of_rows(reads, 1.0)],
            (false, Pass::Backward) => vec![of_rows(pairs, 2.0 + shared), of_rows(values, 2.0), of_rows(reads, 3.0)],
            (true, Pass::Backward) => {
                vec![of_rows(pairs, 4.0 + 2.0 * shared), of_rows(values, 5.0), of_rows(reads, 4.0)]
            }
            (true, Pass::State) => vec![of_rows(pairs, shared), of_rows([rows, c + k, rows], 1.0)],
            (true, Pass::StateBackward) => vec![of_rows(pairs, 2.0 * shared), of_rows(values, 2.0)],
            (true, Pass::Carry) => return vec![ChunkProduct::of_states([k, c, k], 1.0)],
            (false, Pass::State | Pass::StateBackward) => Vec::new(),
            (false, Pass::Carry) => return Vec::new(),
        };
        // A transition has as many columns as keys have elements.
        let columns = if is_delta && self.pass == Pass::State { c + k } else { c };
        let passes = if self.pass == Pass::Backward { 2.0 } else { 1.0 };
        let of_rule = match (is_delta, self.pass) {
            (true, Pass::StateBackward) => 3.0,
            (true, _) => 2.0,
            (false, _) => 1.0,
        };
        products.push(ChunkProduct::of_states([k, columns, rows], passes * of_rule));
        products
    }
}

impl Pass {
    /// Operations of a selective scan for each element of a state; `None` for states from block to block.
    fn selective(self) -> Option<f64> {
        match self {
            Pass::Forward => Some(7.0),
            Pass::Backward => Some(20.0),
            Pass::State | Pass::StateBackward => Some(5.0),
            Pass::Carry => None,
        }
    }
}
