//! Attention sharded by heads (Jacobs et al. 2023, DeepSpeed Ulysses). A sequence sharded over cp is unsharded within
//! attention, and the heads are sharded instead.
//!
//! The outputs of attention and its gradient are pinned to heads; values computed from them are pinned to the sequence.
//! The reshards between the two become all-to-alls.

use crate::PlanError;
use ir::dim_role::DimRole;
use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::mesh::Axes;
use ir::ops::OpClass;
use ir::options::{AnnotationTarget, CpKind, ParallelConfig, PlanOptions};
use ir::types::{Dims, Type};

/// Dims of queries, keys and values: the sequence and the heads.
const SEQUENCE: usize = 1;
const HEADS: usize = 2;

/// Pins attention to heads if the configuration asks for it.
///
/// # Errors
/// The model has too few heads.
pub(crate) fn attend_by_heads(model: &mut Model, options: &PlanOptions) -> Result<(), PlanError> {
    if options.parallel.cp <= 1 || options.parallel.cp_kind != CpKind::Ulysses {
        return Ok(());
    }
    let lookup = |name: &str| model.mesh.lookup(name).unwrap_or_default();
    let cp = lookup("cp");
    let rules = || options.rules.iter().filter(|rule| rule.on == AnnotationTarget::Params);
    for block in model.blocks.values_mut() {
        for stmt in attentions(block) {
            let dim = &block.ty(stmt.results[0]).dims[HEADS];
            let role = dim.role(&model.dims);
            let of_params = rules().filter(|rule| role.is_some_and(|role| rule.roles.contains(&role)));
            let of_params = of_params.map(|rule| lookup(&rule.axis));
            let outside = of_params.fold(Axes::none(), |all, axes| all.union(&axes));
            let inside = outside.union(&cp);
            if !model.mesh.is_even(dim.size, &inside) {
                let name = dim.name.map_or_else(String::new, |id| model.dims[id].name.clone());
                return Err(uneven([model.mesh.size(&outside), model.mesh.size(&cp)], name, dim.size));
            }
            pin(block, &model.dims, &stmt, &[(SEQUENCE, Axes::none()), (HEADS, inside)]);
            for reader in readers(block, &stmt) {
                pin(block, &model.dims, &reader, &[(SEQUENCE, cp.clone())]);
            }
        }
    }
    Ok(())
}

/// Checks that the configuration's cp degree divides the key heads of a built model.
///
/// # Errors
/// The model has too few heads.
pub fn check_heads(dims: &Dims, parallel: &ParallelConfig) -> Result<(), PlanError> {
    let ParallelConfig { tp, cp, cp_kind, .. } = *parallel;
    let mut heads = dims.values().filter(|dim| dim.role == Some(DimRole::KvHeads));
    let by_heads = cp > 1 && cp_kind == CpKind::Ulysses;
    let too_few = heads.find(|dim| by_heads && !dim.size.is_multiple_of(tp * cp));
    too_few.map_or(Ok(()), |dim| Err(uneven([tp, cp], dim.name.clone(), dim.size)))
}

/// Error for heads that tp and cp together do not divide.
fn uneven([tp, cp]: [u64; 2], dim: String, size: u64) -> PlanError {
    let axis = if tp > 1 { "tp x cp" } else { "cp" };
    PlanError::NotDivisible { axis: axis.to_string(), degree: tp * cp, dim, size }
}

fn attends(stmt: &Stmt) -> bool {
    stmt.op.class() == OpClass::Attention
}

fn attentions(block: &Block) -> Vec<Stmt> {
    block.sections.iter().flat_map(|section| &section.stmts).filter(|stmt| attends(stmt)).cloned().collect()
}

/// Statements of F and I that read the statement's results, except attention and its gradient.
fn readers(block: &Block, made: &Stmt) -> Vec<Stmt> {
    let sections = [SectionKind::F, SectionKind::I].into_iter().flat_map(|kind| &block[kind].stmts);
    let reads = |stmt: &&Stmt| !attends(stmt) && stmt.operands.iter().any(|value| made.results.contains(value));
    sections.filter(reads).cloned().collect()
}

/// Pins the open dims of a statement's results.
fn pin(block: &mut Block, dims: &Dims, stmt: &Stmt, pins: &[(usize, Axes)]) {
    for &result in &stmt.results {
        let ty: &mut Type = &mut block.values[result].ty;
        let runs_along = ty.dims.get(SEQUENCE).and_then(|dim| dim.role(dims)) == Some(DimRole::Sequence);
        for (place, axes) in pins.iter().filter(|_| runs_along) {
            if let Some(dim) = ty.dims.get_mut(*place).filter(|dim| dim.open) {
                (dim.axes, dim.open) = (axes.clone(), false);
            }
        }
    }
}
