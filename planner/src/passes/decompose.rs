//! `decompose`: replaces composite ops by graphs of simpler ops. Ops whose `!` dim is sharded are replaced too:
//! softmax, cross-entropy and norms over a sharded vocabulary or hidden dim.

use crate::PlanError;
use crate::fault::Fault;
use crate::sections::{Hints, Known, Site, count_uses, instance_of};
use cost::Platform;
use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::Builder;
use ir::options::PlanOptions;
use ir::rule::{DimFactors, Instance};
use rustc_hash::FxHashMap;

pub(crate) fn run(model: &mut Model, _: &PlanOptions, _: &Platform<'_>) -> Result<(), PlanError> {
    decompose(model)
}

/// Replaces the composite ops of a model, and those whose `!` dim is sharded, by graphs of simpler ops.
///
/// # Errors
/// An op has no decomposition, which is an internal error.
pub fn decompose(model: &mut Model) -> Result<(), PlanError> {
    let (mesh, dims) = (model.mesh.clone(), model.dims.clone());
    let site = Site { mesh: &mesh, dims: &dims };
    let step = model.step.as_mut().map(|step| &mut step.graph);
    for block in model.blocks.values_mut().chain(step) {
        for kind in SectionKind::ALL {
            expand_section(&site, block, kind).map_err(|fault| fault.in_pass("decompose"))?;
        }
    }
    Ok(())
}

/// Decomposes the statements of a section that require it.
///
/// # Errors
/// An op has no decomposition.
pub(crate) fn expand_section(site: &Site<'_>, block: &mut Block, kind: SectionKind) -> Result<(), Fault> {
    let uses = count_uses(block);
    for stmt in std::mem::take(&mut block[kind].stmts) {
        let decided = if must_expand(block, &stmt)? { expand(site, block, stmt, uses.clone())? } else { vec![stmt] };
        block[kind].stmts.extend(decided);
    }
    Ok(())
}

/// Returns whether the op is composite, or has an operand sharded on a `!` factor.
fn must_expand(block: &Block, stmt: &Stmt) -> Result<bool, Fault> {
    if stmt.op.is_composite() || !stmt.op.facts().expands_when_sharded {
        return Ok(stmt.op.is_composite());
    }
    let Some(instance) = instance_of(block, stmt)? else { return Ok(false) };
    // A result with the factor decides; without one the operands decide.
    let results_decide = instance.results.iter().flatten().any(|factors| has_marked(&instance, factors));
    let (tensors, values) = match results_decide {
        true => (&instance.results, &stmt.results),
        false => (&instance.operands, &stmt.operands),
    };
    Ok(tensors.iter().zip(values).any(|(tensor, &value)| {
        let mut dims = tensor.iter().zip(&block.ty(value).dims);
        dims.any(|(factors, dim)| has_marked(&instance, factors) && !dim.axes.is_empty())
    }))
}

/// Returns whether a dim has a `!` factor.
fn has_marked(instance: &Instance, factors: &DimFactors) -> bool {
    factors.iter().any(|&factor| instance.factors[factor].marked_replicated)
}

/// Decides the graph that replaces a statement; `uses` counts all reads of the block, the statement's own included.
fn expand(
    site: &Site<'_>,
    block: &mut Block,
    stmt: Stmt,
    mut uses: FxHashMap<Value, usize>,
) -> Result<Vec<Stmt>, Fault> {
    let Some(def) = stmt.op.def() else { return Ok(vec![stmt]) };
    let mut builder = Builder::new(block);
    let made = def.expand(&mut builder, &stmt.operands).ok_or(Fault::NoExpansion)?.map_err(Fault::Op)?;
    let mut stmts = builder.stmts;
    for (&from, &to) in made.iter().zip(&stmt.results) {
        rename(&mut stmts, from, to);
    }
    if let Some(first) = stmts.first_mut() {
        first.comments = stmt.comments.clone();
    }
    let own: Vec<Value> = stmts.iter().flat_map(|stmt| stmt.results.clone()).collect();
    for &value in own.iter().filter(|value| !stmt.results.contains(value)) {
        block.values[value].ty.dims.iter_mut().for_each(|dim| dim.open = true);
    }
    stmt.operands.iter().for_each(|operand| *uses.entry(*operand).or_insert(1) -= 1);
    stmts.iter().flat_map(|stmt| &stmt.operands).for_each(|operand| *uses.entry(*operand).or_insert(0) += 1);
    let known = Known { uses, ..Known::default() };
    let mut decided = Vec::new();
    for stmt in stmts {
        decided.extend(site.statement(block, stmt, &known, &Hints::default())?);
    }
    Ok(decided)
}

fn rename(stmts: &mut [Stmt], from: Value, to: Value) {
    for stmt in stmts {
        stmt.results.iter_mut().chain(&mut stmt.operands).filter(|value| **value == from).for_each(|value| *value = to);
    }
}
