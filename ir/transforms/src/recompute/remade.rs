//! Activations that the backward computes again whatever the configuration says: that takes no memory and moves no bytes.

use ir::entity::SecondaryMap;
use ir::graph::{ArgKind, Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::Rows;
use ir::saved::set;
use ir::types::Type;
use std::collections::BTreeSet;

/// The statements of `F`, by index, that compute such values: functions of values that the backward reads anyway, or of other
/// such values. Only statements on elements read their results in the backward, so that a group computes them from what it reads
/// for its other statements. `silu(g)` of a SwiGLU is one: its gradient and that of the product read `g`.
pub fn remade(block: &Block) -> BTreeSet<usize> {
    let read = set(backward(block).flat_map(|stmt| &stmt.operands).copied());
    // What sections return is stored, and what others than elementwise ops read is, too.
    let returned = [SectionKind::F, SectionKind::I].iter().flat_map(|&kind| &block[kind].ret);
    let of_others = backward(block).filter(|stmt| !is_elementwise(block, stmt)).flat_map(|stmt| &stmt.operands);
    let stored = set(returned.chain(of_others).copied());
    let mut free: FreeValues = SecondaryMap::new();
    for (at, stmt) in block[SectionKind::F].stmts.iter().enumerate().filter(|(_, stmt)| is_elementwise(block, stmt)) {
        let has_operands = stmt.operands.iter().all(|value| {
            free[*value].is_some() || read.contains(*value) || block.arg_kind(*value) == Some(ArgKind::Param)
        });
        let result = stmt.results[0];
        if has_operands && !stored.contains(result) {
            free[result] = Some(at);
        }
    }
    needed(block, &free)
}

/// The statements that compute values which need not be stored.
type FreeValues = SecondaryMap<Value, Option<usize>>;

/// The statements whose results the backward reads, or that others of them are computed from.
fn needed(block: &Block, free: &FreeValues) -> BTreeSet<usize> {
    let mut wanted: Vec<Value> = backward(block).flat_map(|stmt| stmt.operands.iter().copied()).collect();
    let mut needed = BTreeSet::new();
    while let Some(value) = wanted.pop() {
        if let Some(at) = free[value].filter(|at| needed.insert(*at)) {
            wanted.extend(&block[SectionKind::F].stmts[at].operands);
        }
    }
    needed
}

fn backward(block: &Block) -> impl Iterator<Item = &Stmt> {
    block[SectionKind::I].stmts.iter().chain(&block[SectionKind::W].stmts)
}

/// True if each element of the result is computed from the elements at its place. A cast is none: what it reads or writes is
/// saved in another format.
fn is_elementwise(block: &Block, stmt: &Stmt) -> bool {
    let types: Vec<&Type> = stmt.operands.iter().map(|&value| block.ty(value)).collect();
    let results = stmt.results.iter().map(|&value| block.ty(value));
    let mut floats = types.iter().copied().chain(results).map(|ty| ty.dtype).filter(|dtype| dtype.is_float());
    let first = floats.next();
    floats.all(|dtype| Some(dtype) == first)
        && stmt.op.def().and_then(|def| def.rows(&types)) == Some(Rows::elements(types.len()))
}
