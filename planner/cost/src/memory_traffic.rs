//! Traffic of a body's kernels with memory, outside products and attention.

use crate::local_types::{local_type, untouched};
use ir::graph::Stmt;
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::OpClass;
use ir::program::{Body, BodyInstr};
use std::collections::BTreeSet;

/// Launches of kernels, and the bytes that they read and write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryTraffic {
    /// Kernels that are launched.
    pub launches: u64,
    /// Bytes of their operands and results, each once a kernel.
    pub bytes: u64,
}

/// The traffic of a body on a rank: first as if each statement were a kernel, then with its groups.
///
/// Products and attention do not count: their time is in their arithmetic. Of a group with a product, that counts which goes beyond the
/// product. Views launch nothing.
pub fn memory_traffic(mesh: &Mesh, body: &Body) -> [MemoryTraffic; 2] {
    let [mut apart, mut grouped] = [MemoryTraffic::default(); 2];
    for instr in &body.instrs {
        let stmts: Vec<&Stmt> = instr.stmts().iter().filter(|stmt| is_memory_bound(stmt)).collect();
        for stmt in &stmts {
            apart.add(mesh, body, &stmt.operands, &stmt.results, &[stmt]);
        }
        match instr {
            BodyInstr::Fused(fused) => {
                grouped.add(mesh, body, &fused.reads(), &fused.outs, &stmts);
                if let Some(product) = fused.product() {
                    let own = local_bytes(mesh, body, product.operands.iter().chain(&product.results));
                    grouped.launches -= 1;
                    grouped.bytes = grouped.bytes.saturating_sub(own);
                }
            }
            _ => stmts.iter().for_each(|stmt| grouped.add(mesh, body, &stmt.operands, &stmt.results, &[stmt])),
        }
    }
    [apart, grouped]
}

/// True if a statement is a kernel whose time is in the bytes that it moves: neither a product, nor attention, nor a view.
pub fn is_memory_bound(stmt: &Stmt) -> bool {
    let Some(facts) = stmt.op.def().map(|def| def.facts()) else { return false };
    !matches!(facts.class, OpClass::Product | OpClass::Attention) && !facts.is_view
}

/// Bytes of values on a rank.
fn local_bytes<'v>(mesh: &Mesh, body: &Body, values: impl Iterator<Item = &'v Value>) -> u64 {
    values.map(|&value| local_type(&body.values[value].ty, mesh).bytes()).sum()
}

impl MemoryTraffic {
    /// Counts a kernel that runs statements. Results that it adds to are read first.
    fn add(&mut self, mesh: &Mesh, body: &Body, reads: &[Value], writes: &[Value], stmts: &[&Stmt]) {
        let sums = stmts.iter().filter(|stmt| stmt.accumulate).flat_map(|stmt| &stmt.results);
        let reads: BTreeSet<Value> = reads.iter().chain(sums).copied().collect();
        self.launches += 1;
        let bytes = local_bytes(mesh, body, reads.iter().chain(writes));
        self.bytes += bytes.saturating_sub(stmts.iter().map(|stmt| untouched(mesh, &body.values, stmt)).sum());
    }
}
