//! Activations that the backward computes again whatever the configuration says: that takes no memory and moves no bytes.

use ir::graph::{ArgKind, Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::OpClass;
use std::collections::BTreeSet;

/// The statements of `F`, by index, that compute such values: functions of one value that the backward reads anyway. Other
/// activations are the only readers of their results in the backward, so that a group computes them from what it reads for its
/// other statements. `silu(g)` of a SwiGLU is one: its gradient and that of the product read `g`.
pub fn remade(block: &Block) -> BTreeSet<usize> {
    let backward = || block[SectionKind::I].stmts.iter().chain(&block[SectionKind::W].stmts);
    let readers = |value: Value| backward().filter(move |stmt| stmt.operands.contains(&value));
    let is_there = |value: Value| readers(value).next().is_some() || block.arg_kind(value) == Some(ArgKind::Param);
    let is_remade = |stmt: &Stmt| {
        let (&[operand], &[result]) = (&stmt.operands[..], &stmt.results[..]) else { return false };
        is_activation(stmt)
            && is_there(operand)
            && readers(result).next().is_some()
            && readers(result).all(is_activation)
            && ![SectionKind::F, SectionKind::I].iter().any(|&kind| block[kind].ret.contains(&result))
    };
    let forward = block[SectionKind::F].stmts.iter().enumerate();
    forward.filter(|(_, stmt)| is_remade(stmt)).map(|(at, _)| at).collect()
}

fn is_activation(stmt: &Stmt) -> bool {
    stmt.op.class() == OpClass::Activation
}
