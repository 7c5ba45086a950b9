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
use ir::ops::{KernelOp, Op, ScanKind, ScanSettings};
use ir::types::{Dim, Type};

/// Columns of a state that one block of threads takes.
const COLUMNS: f64 = 32.0;

/// A scan, forward or backward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan {
    settings: ScanSettings,
    backward: bool,
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

/// The scan of a statement on one rank; `None` for other statements.
pub(super) fn local(local: &Local<'_>, stmt: &Stmt) -> Option<Scan> {
    of_stmt(local, stmt, |dim| local.size(dim))
}

/// The same on unsharded tensors.
pub(super) fn logical(local: &Local<'_>, stmt: &Stmt) -> Option<Scan> {
    of_stmt(local, stmt, |dim| dim.size as f64)
}

fn of_stmt(local: &Local<'_>, stmt: &Stmt, size: impl Fn(&Dim) -> f64) -> Option<Scan> {
    let Op::Kernel(op) = &stmt.op else { return None };
    let (settings, backward) = match op {
        KernelOp::Scan(op) => (op.0, false),
        KernelOp::ScanGrad(op) => (op.0, true),
        _ => return None,
    };
    let [_, keys, values, decay, ..] = stmt.operands.as_slice() else { return None };
    let [keys, values] = [keys, values].map(|&value| local.dims(value).iter().map(&size).collect::<Vec<f64>>());
    let values = <[f64; 5]>::try_from(values).ok()?;
    let by_key = local.dims(*decay).len() == 5;
    Some(Scan { settings, backward, values, key: *keys.last()?, by_key })
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
        counted(self.settings.kind) * self.key * self.values.iter().product::<f64>()
    }

    /// Seconds of its kernels.
    pub(super) fn seconds(&self, site: &Site<'_>) -> f64 {
        let [b, s, g, r, c] = self.values;
        let (tokens, platform) = (b * s * g * r, site.platform);
        if self.settings.kind == ScanKind::Selective {
            let flops = tokens * self.key * c * if self.backward { 20.0 } else { 7.0 };
            return (flops / platform.cluster.device.flops_f32).max(platform.memory_bound(self.bytes(site)));
        }
        let rows = s.min(self.settings.chunk as f64).max(1.0);
        let blocks = b * g * r * (c / COLUMNS).ceil();
        let busy = (blocks / platform.cluster.device.sms as f64).min(1.0);
        let chunks = tokens / rows;
        let products = self.products(rows).into_iter().map(|product| {
            let [m, n, k] = product.size;
            let seconds = platform.matmul(chunks * product.times, m, n, k, Format::Half, false);
            if product.is_of_states { seconds / busy } else { seconds }
        });
        products.sum::<f64>().max(platform.memory_bound(self.bytes(site)))
    }

    /// Number of kernels: what chunks need, the states, and the results; in the backward the states again, and their gradients.
    pub(super) fn kernels(&self) -> f64 {
        match (self.settings.kind, self.backward) {
            (ScanKind::Selective, _) => 1.0,
            (_, false) => 3.0,
            (_, true) => 5.0,
        }
    }

    /// Bytes of operands and results.
    fn bytes(&self, site: &Site<'_>) -> f64 {
        let [b, s, g, r, c] = self.values;
        let wide = Format::F32.bytes();
        let decays =
            if self.by_key { self.key } else { 1.0 } + if self.settings.kind == ScanKind::Delta { 1.0 } else { 0.0 };
        let heads = site.platform.recipe.activation * (2.0 * self.key + 2.0 * r * c) + wide * r * decays;
        b * s * g * heads * if self.backward { 2.0 } else { 1.0 }
    }

    /// The products of a chunk of rows; triangles are not halved.
    fn products(&self, rows: f64) -> Vec<ChunkProduct> {
        let (k, c) = (self.key, self.values[4]);
        let shared = if self.by_key { 1.0 } else { 1.0 / self.values[3].max(1.0) };
        let is_delta = self.settings.kind == ScanKind::Delta;
        let (pairs, values, reads) = ([rows, rows, k], [rows, c, rows], [rows, c, k]);
        let mut products = match (is_delta, self.backward) {
            (false, false) => vec![
                ChunkProduct::of_rows(pairs, shared),
                ChunkProduct::of_rows(values, 1.0),
                ChunkProduct::of_rows(reads, 1.0),
            ],
            (true, false) => vec![
                ChunkProduct::of_rows(pairs, 2.0 * shared),
                ChunkProduct::of_rows(values, 2.0),
                ChunkProduct::of_rows(reads, 1.0),
            ],
            (false, true) => vec![
                ChunkProduct::of_rows(pairs, 2.0 + shared),
                ChunkProduct::of_rows(values, 2.0),
                ChunkProduct::of_rows(reads, 3.0),
            ],
            (true, true) => vec![
                ChunkProduct::of_rows(pairs, 4.0 + 2.0 * shared),
                ChunkProduct::of_rows(values, 5.0),
                ChunkProduct::of_rows(reads, 4.0),
            ],
        };
        let passes = if self.backward { 2.0 } else { 1.0 };
        products.push(ChunkProduct::of_states([k, c, rows], passes * if is_delta { 2.0 } else { 1.0 }));
        products
    }
}
