//! Distributes the backward statements: `I` gets those that the cotangents of the arguments need, `W` those that only
//! gradients of parameters need. Dead statements are dropped.

use super::free;
use super::reverse::Backward;
use crate::build_error::BuildError;
use crate::recompute::copy_forward;
use ir::entity::EntitySet;
use ir::graph::{Block, GRADIENT, Section, SectionKind, Span, Stmt};
use ir::ids::Value;
use ir::ops::{Unary, UnaryKind};
use ir::types::{DType, Type};

/// Fills `I` and `W` in the order of the statements.
///
/// # Errors
/// The name of a gradient is taken.
pub(super) fn split(block: &mut Block, backward: Backward) -> Result<(), BuildError> {
    let Backward { given, stmts, args, params } = backward;
    let in_i = reaching(&stmts, args.iter().copied());
    let in_w = reaching(&stmts, params.iter().map(|&(_, gradient)| gradient));
    let (mut inputs, mut weights) = (Vec::new(), Vec::new());
    for (place, stmt) in stmts.into_iter().enumerate() {
        if in_i[place] {
            inputs.push(stmt);
        } else if in_w[place] {
            weights.push(stmt);
        }
    }
    for section in [&mut inputs, &mut weights] {
        copy_forward(block, section, |_, stmt| stmt.op.facts().is_recomputed, "");
    }
    for &(param, gradient) in &params {
        let owners = params.iter().filter(|&&(_, other)| other == gradient).count();
        accumulate(block, &mut weights, param, gradient, owners == 1)?;
    }
    block[SectionKind::I] = Section { args: given, stmts: inputs, ret: args };
    block[SectionKind::W] = Section { stmts: weights, ..Section::default() };
    Ok(())
}

/// The statements that some of the ends depend on.
fn reaching(stmts: &[Stmt], ends: impl Iterator<Item = Value>) -> Vec<bool> {
    let mut wanted = EntitySet::new();
    wanted.extend(ends);
    let mut reaching = vec![false; stmts.len()];
    for (place, stmt) in stmts.iter().enumerate().rev() {
        if stmt.results.iter().any(|&value| wanted.contains(value)) {
            reaching[place] = true;
            wanted.extend(stmt.operands.iter().copied());
        }
    }
    reaching
}

/// Makes `%w.grad: f32[..] += ..` of the statement in `W` that yields the gradient of `%w`. Where it cannot be that
/// statement, because it is in `I` or the value has other uses, a statement that adds the value is appended.
fn accumulate(
    block: &mut Block,
    weights: &mut Vec<Stmt>,
    param: Value,
    gradient: Value,
    sole: bool,
) -> Result<(), BuildError> {
    let name = free(block, format!("{}{GRADIENT}", block.value_name(param)))?;
    let read = weights.iter().any(|stmt| stmt.operands.contains(&gradient));
    match weights.iter_mut().find(|stmt| stmt.results == [gradient]) {
        Some(stmt) if sole && !read => {
            stmt.accumulate = true;
            block.values[gradient].name = name;
            block.values[gradient].ty.dtype = DType::F32;
        }
        _ => {
            let ty = Type { dtype: DType::F32, ..block.ty(gradient).clone() };
            weights.push(Stmt {
                results: vec![block.add_value(&name, ty)],
                accumulate: true,
                op: Unary(UnaryKind::Scale(1.0)).into(),
                operands: vec![gradient],
                comments: Vec::new(),
                span: Span::default(),
            });
        }
    }
    Ok(())
}
