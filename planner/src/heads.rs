//! Attention sharded by heads (Jacobs et al. 2023, DeepSpeed Ulysses). A sequence sharded over cp is unsharded within
//! attention, and the heads are sharded instead: key heads, or the query heads of each if there are too few key heads.
//!
//! The outputs of attention and its gradient are pinned to heads; values computed from them are pinned to the sequence.
//! The reshards between the two become all-to-alls.

use crate::PlanError;
use crate::states::check_states;
use ir::dim_role::DimRole;
use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::heads::{self, CpHeads, Heads};
use ir::limits;
use ir::mesh::{Axes, Mesh};
use ir::ops::OpClass;
use ir::options::{AnnotationRule, AnnotationTarget, CpKind, ParallelConfig, PlanOptions};
use ir::types::{Dims, Type};

/// Dims of queries, keys and values: the sequence and the key heads; of queries also the query heads of each.
const SEQUENCE: usize = 1;
const HEADS: usize = 2;
const QUERIES: usize = 3;

/// Axes of a rule that shard key heads, and those whose ranks share a key head.
pub(crate) fn head_axes(mesh: &Mesh, axes: &Axes, heads: Option<Heads>) -> [Axes; 2] {
    let sharing = heads.and_then(|heads| heads.sharing(mesh.size(axes))).unwrap_or(1);
    heads::split(mesh, axes, sharing).unwrap_or_else(|| [axes.clone(), Axes::none()])
}

/// Pins attention to heads if the configuration asks for it.
///
/// # Errors
/// The model has too few heads.
pub(crate) fn attend_by_heads(model: &mut Model, options: &PlanOptions) -> Result<(), PlanError> {
    check_exchange(model, &options.parallel)?;
    if options.parallel.cp <= 1 || options.parallel.cp_kind != CpKind::Ulysses {
        return Ok(());
    }
    let (cp, heads) = (model.mesh.lookup("cp").unwrap_or_default(), Heads::of(model.dims.values()));
    let rules = options.rules.iter().filter(|rule| shards_heads(rule));
    let axes = rules.map(|rule| model.mesh.lookup(&rule.axis).unwrap_or_default());
    let outside = axes.fold(Axes::none(), |all, axes| all.union(&axes));
    let (outside_degree, cp_degree) = (model.mesh.size(&outside), model.mesh.size(&cp));
    let [mut keys, mut queries] = head_axes(&model.mesh, &outside, heads);
    match heads.and_then(|heads| heads.of_cp(outside_degree, cp_degree)) {
        Some(CpHeads::Queries) => queries = queries.union(&cp),
        Some(CpHeads::Keys) | None => keys = keys.union(&cp),
    }
    for block in model.blocks.values_mut() {
        for stmt in attentions(block) {
            let dim = &block.ty(stmt.results[0]).dims[HEADS];
            if !model.mesh.is_even(dim.size, &keys) {
                let name = dim.name.map_or_else(String::new, |id| model.dims[id].name.clone());
                return Err(uneven(outside_degree, cp_degree, name, dim.size, heads));
            }
            // Layers may have other heads than those that the degrees are chosen for.
            let dim = &block.ty(stmt.results[0]).dims[QUERIES];
            if !queries.is_empty() && !model.mesh.is_even(dim.size, &queries) {
                let name = dim.name.map_or_else(String::new, |id| model.dims[id].name.clone());
                return Err(uneven(outside_degree, cp_degree, name, dim.size, heads));
            }
            let places = [(SEQUENCE, Axes::none()), (HEADS, keys.clone()), (QUERIES, queries.clone())];
            pin(block, &model.dims, &stmt, &places[..if queries.is_empty() { 2 } else { 3 }]);
            for reader in readers(block, &stmt) {
                pin(block, &model.dims, &reader, &[(SEQUENCE, cp.clone())]);
            }
        }
    }
    Ok(())
}

/// Returns whether attention of a model reads keys anywhere in the sequence, which ranks must gather.
pub fn gathers_keys(model: &Model) -> bool {
    let mut stmts = model.blocks.values().flat_map(|block| &block[SectionKind::F].stmts);
    stmts.any(|stmt| attends(stmt) && stmt.op.extras().in_rounds.is_none())
}

/// Checks that ranks that share a sequence can exchange keys as the configuration says.
fn check_exchange(model: &Model, parallel: &ParallelConfig) -> Result<(), PlanError> {
    let ParallelConfig { cp, cp_kind, .. } = *parallel;
    match cp > 1 && cp_kind != CpKind::AllGather && gathers_keys(model) {
        true => Err(PlanError::ChosenKeys { kind: cp_kind.name() }),
        false => Ok(()),
    }
}

/// Checks that ranks can share sequences of a built model as the configuration says: that cp divides its heads, that its keys can be
/// exchanged, and that states go from block to block.
///
/// # Errors
/// The model has too few heads, queries choose keys that ranks must gather, or blocks are uneven or too short for a state.
pub fn check_sharing(model: &Model, parallel: &ParallelConfig) -> Result<(), PlanError> {
    check_states(model, parallel)?;
    check_exchange(model, parallel)?;
    let dims = &model.dims;
    let ParallelConfig { tp, cp, cp_kind, .. } = *parallel;
    let Some(heads) = Heads::of(dims.values()).filter(|_| cp > 1 && cp_kind == CpKind::Ulysses) else { return Ok(()) };
    let too_few = heads.of_cp(tp, cp).is_none();
    let dim = dims.values().find(|dim| too_few && dim.role == Some(DimRole::KvHeads));
    dim.map_or(Ok(()), |dim| Err(uneven(tp, cp, dim.name.clone(), dim.size, Some(heads))))
}

/// Returns whether a rule shards the key heads of parameters.
fn shards_heads(rule: &AnnotationRule) -> bool {
    rule.on == AnnotationTarget::Params && rule.roles.contains(&DimRole::KvHeads)
}

/// Error for heads that tp and cp together do not divide.
fn uneven(tp: u64, cp: u64, dim: String, size: u64, heads: Option<Heads>) -> PlanError {
    let axis = if tp > 1 { "tp x cp" } else { "cp" };
    let degrees = match heads {
        None => divisors(size),
        Some(heads) => {
            let fit = heads.degrees().into_iter().filter(|cp| heads.of_cp(tp, *cp).is_some());
            fit.map(|cp| tp * cp).collect()
        }
    };
    PlanError::NotDivisible { axis: axis.to_string(), degree: tp * cp, dim, size, degrees }
}

/// Degrees that divide a size.
pub(crate) fn divisors(size: u64) -> Vec<u64> {
    (1..=size.min(limits::DEVICES)).filter(|n| size.is_multiple_of(*n)).collect()
}

fn attends(stmt: &Stmt) -> bool {
    stmt.op.facts().class == OpClass::Attention
}

fn attentions(block: &Block) -> Vec<Stmt> {
    block.sections.iter().flat_map(|section| &section.stmts).filter(|stmt| attends(stmt)).cloned().collect()
}

/// Statements of F and I that read the statement's results, except attention and its gradient.
fn readers(block: &Block, made: &Stmt) -> Vec<Stmt> {
    let sections = [SectionKind::F, SectionKind::I].into_iter().flat_map(|kind| &block[kind].stmts);
    let readers = sections.filter(|stmt| stmt.operands.iter().any(|value| made.results.contains(value)));
    readers.filter(|stmt| !attends(stmt)).cloned().collect()
}

/// Pins the open dims of a statement's results.
fn pin(block: &mut Block, dims: &Dims, stmt: &Stmt, pins: &[(usize, Axes)]) {
    for &result in &stmt.results {
        let ty: &mut Type = &mut block.values[result].ty;
        let runs_along = ty.dims.get(SEQUENCE).and_then(|dim| dim.role(dims)) == Some(DimRole::Sequence);
        for (place, axes) in pins.iter().filter(|_| runs_along) {
            let Some(dim) = ty.dims.get_mut(*place).filter(|dim| dim.open) else { continue };
            // Keys and values have the elements of a head in the place of query heads.
            if *place != QUERIES || dim.role(dims) == Some(DimRole::QueryHeads) {
                (dim.axes, dim.open) = (axes.clone(), false);
            }
        }
    }
}
