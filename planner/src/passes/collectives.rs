//! `collectives`: replaces each reshard by its cheapest sequence of collectives, and combines those of `U` into
//! buckets.
//!
//! A reshard path uses only the axes of its two shardings. Slicing over other axes would shrink a reduction, but the
//! extra gather would split values that share a bucket.

use crate::PlanError;
use crate::reshard::{ReshardCache, ReshardStep, Site};
use cost::Platform;
use ir::graph::{ArgKind, Block, Model, SectionKind, Span, Stmt};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::{Collective, Op};
use ir::options::PlanOptions;
use ir::types::{PartialKind, Type};

pub(crate) fn run(model: &mut Model, options: &PlanOptions, platform: &Platform<'_>) -> Result<(), PlanError> {
    run_by(&ReshardCache::default(), model, options, platform)
}

/// Runs the pass with a cache of reshard paths on the same platform.
pub(crate) fn run_by(
    known: &ReshardCache,
    model: &mut Model,
    options: &PlanOptions,
    platform: &Platform<'_>,
) -> Result<(), PlanError> {
    let (mesh, dims) = (model.mesh.clone(), model.dims.clone());
    let site = Site::new(&mesh, &dims, platform);
    let mut paths = Found { site, known, found: Vec::new() };
    let step = model.step.as_mut().map(|step| &mut step.graph);
    for block in model.blocks.values_mut().chain(step) {
        for kind in SectionKind::ALL {
            lower_section(&mut paths, block, kind).map_err(fault)?;
        }
        combine(block, &mesh, options.bucket_bytes);
    }
    Ok(())
}

/// Distinct reshards of a model, as pairs of types.
pub fn marked(model: &Model) -> Vec<[Type; 2]> {
    let mut changes: Vec<[Type; 2]> = Vec::new();
    for block in model.blocks.values() {
        let stmts = block.sections.iter().flat_map(|section| &section.stmts);
        for stmt in stmts.filter(|stmt| stmt.op == Op::Reshard) {
            let change = [stmt.operands[0], stmt.results[0]].map(|value| block.ty(value).clone());
            if !changes.iter().any(|known| known.iter().zip(&change).all(|(a, b)| is_alike(a, b))) {
                changes.push(change);
            }
        }
    }
    changes
}

/// Reshard paths of these pairs of types.
///
/// # Errors
/// A pair has no reshard path.
pub fn reshard_paths(
    changes: impl Iterator<Item = [Type; 2]>,
    site: &Site<'_>,
    known: &ReshardCache,
) -> Result<Vec<Vec<Collective>>, PlanError> {
    let path = |[from, to]: [Type; 2]| {
        let steps = known.cheapest(site, &from, &to).map_err(|why| fault(why.to_string()))?;
        Ok(steps.into_iter().map(|step| step.change).collect())
    };
    changes.map(path).collect()
}

fn fault(why: String) -> PlanError {
    PlanError::Fault { pass: "collectives", why }
}

/// Reshard paths by pair of types, since the sections of a block need the same paths.
struct Found<'a> {
    site: Site<'a>,
    known: &'a ReshardCache,
    found: Vec<(Type, Type, Vec<ReshardStep>)>,
}

impl Found<'_> {
    fn path(&mut self, from: &Type, to: &Type) -> Result<Vec<ReshardStep>, String> {
        let known = self.found.iter().find(|(f, t, _)| is_alike(f, from) && is_alike(t, to));
        if let Some((_, _, path)) = known {
            return Ok(path.clone());
        }
        let path = self.known.cheapest(&self.site, from, to).map_err(|why| why.to_string())?;
        self.found.push((from.clone(), to.clone(), path.clone()));
        Ok(path)
    }
}

/// Returns whether the types are equal and their dims have the same names.
fn is_alike(a: &Type, b: &Type) -> bool {
    a == b && a.dims.iter().zip(&b.dims).all(|(a, b)| a.name == b.name)
}

fn lower_section(paths: &mut Found<'_>, block: &mut Block, kind: SectionKind) -> Result<(), String> {
    let mut stmts: Vec<Stmt> = Vec::new();
    for stmt in std::mem::take(&mut block[kind].stmts) {
        let lowered = if stmt.op == Op::Reshard { lower(paths, block, &stmts, &stmt)? } else { vec![stmt] };
        stmts.extend(lowered);
    }
    block[kind].stmts = stmts;
    Ok(())
}

/// Emits the steps of one reshard. If two paths share a prefix, the second path continues from the first path's value.
fn lower(paths: &mut Found<'_>, block: &mut Block, before: &[Stmt], stmt: &Stmt) -> Result<Vec<Stmt>, String> {
    let (from, to) = (stmt.operands[0], stmt.results[0]);
    let path = paths.path(block.ty(from), block.ty(to))?;
    let (mut stmts, mut value) = (Vec::new(), from);
    let last = path.len().saturating_sub(1);
    for (place, ReshardStep { change, ty, .. }) in path.into_iter().enumerate() {
        let op = Op::Collective(change);
        if let (true, Some(made)) = (place < last, made_before(block, before, &op, value)) {
            value = made;
            continue;
        }
        let result = if place == last { to } else { block.add_value("", ty) };
        stmts.push(Stmt {
            results: vec![result],
            accumulate: false,
            op,
            operands: vec![value],
            comments: if stmts.is_empty() { stmt.comments.clone() } else { Vec::new() },
            span: Span::default(),
        });
        value = result;
    }
    Ok(stmts)
}

/// Result of the same step on the value earlier in this section, unless either value is stored to.
fn made_before(block: &Block, before: &[Stmt], op: &Op, value: Value) -> Option<Value> {
    let same = |stmt: &&Stmt| stmt.op == *op && stmt.operands == [value];
    let made = before.iter().find(same)?.results[0];
    let stored = |value| matches!(block.arg_kind(value), Some(ArgKind::Param | ArgKind::State));
    (!stored(value) && !stored(made)).then_some(made)
}

/// Combines equal collectives of `U` over the same axes into buckets of at most `limit` bytes. It combines the gradient
/// reductions at the start, and the gathers of updated parameters at the end, which nothing in `U` reads.
fn combine(block: &mut Block, mesh: &Mesh, limit: u64) {
    let moves = |stmt: &Stmt| matches!(&stmt.op, Op::Collective(c) if c.communicates());
    let mut rest = std::mem::take(&mut block[SectionKind::U].stmts);
    let mut combined = Vec::new();
    loop {
        let computed: Vec<Value> = rest.iter().flat_map(|stmt| stmt.results.clone()).collect();
        let starts = |stmt: &Stmt| moves(stmt) && stmt.operands.iter().all(|value| !computed.contains(value));
        let (ready, others): (Vec<Stmt>, Vec<Stmt>) = rest.into_iter().partition(starts);
        rest = others;
        if ready.is_empty() {
            break;
        }
        combined.extend(buckets(block, mesh, ready, limit));
    }
    let read: Vec<Value> =
        rest.iter().flat_map(|stmt| stmt.operands.clone()).chain(block[SectionKind::U].ret.clone()).collect();
    let ends =
        |stmt: &Stmt| moves(stmt) && stmt.results.iter().all(|value| !read.contains(value) || is_arg(block, *value));
    let (last, middle): (Vec<Stmt>, Vec<Stmt>) = rest.into_iter().partition(ends);
    combined.extend(middle);
    combined.extend(buckets(block, mesh, last, limit));
    block[SectionKind::U].stmts = combined;
}

fn is_arg(block: &Block, value: Value) -> bool {
    block.arg_kind(value).is_some()
}

/// Collectives that do not depend on each other, with equal ones joined into buckets of at most `limit` bytes.
pub(crate) fn buckets(block: &Block, mesh: &Mesh, stmts: Vec<Stmt>, limit: u64) -> Vec<Stmt> {
    let bytes = |stmt: &Stmt| stmt.operands.iter().map(|&v| block.ty(v).local_bytes(mesh)).sum::<u64>();
    let kind =
        |stmt: &Stmt| stmt.operands.first().and_then(|&v| block.ty(v).partial.clone()).map(|partial| partial.kind);
    let mut buckets: Vec<(Stmt, u64, Option<PartialKind>)> = Vec::new();
    for stmt in stmts {
        let (size, unreduced) = (bytes(&stmt), kind(&stmt));
        let fits = |(bucket, filled, bucket_partial): &&mut (Stmt, u64, Option<PartialKind>)| {
            bucket.op == stmt.op && *bucket_partial == unreduced && *filled + size <= limit
        };
        match buckets.iter_mut().find(fits) {
            Some((bucket, filled, _)) => {
                bucket.results.extend(stmt.results);
                bucket.operands.extend(stmt.operands);
                *filled += size;
            }
            None => buckets.push((stmt, size, unreduced)),
        }
    }
    buckets.into_iter().map(|(stmt, _, _)| stmt).collect()
}
