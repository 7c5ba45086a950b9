//! `collectives`: replaces each reshard by its cheapest sequence of collectives, and combines those of `U` into
//! buckets.
//!
//! A reshard path uses only the axes of its two shardings. Slicing over other axes would shrink a reduction, but the
//! extra gather would split values that share a bucket.

use crate::PlanError;
use crate::fault::Fault;
use crate::reshard::{NoPath, ReshardCache, ReshardStep, Site};
use crate::sections::is_stored;
use cost::Platform;
use ir::graph::{Block, Model, SectionKind, Span, Stmt};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::{Collective, Op};
use ir::options::PlanOptions;
use ir::types::{PartialKind, Type};

/// Name of the pass.
const NAME: &str = "collectives";

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
            lower_section(&mut paths, block, kind).map_err(|fault| fault.in_pass(NAME))?;
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
    let mut paths = Vec::new();
    for [from, to] in changes {
        let steps = known.cheapest(site, &from, &to).map_err(|why| Fault::from(why).in_pass(NAME))?;
        paths.push(steps.into_iter().map(|step| step.change).collect());
    }
    Ok(paths)
}

/// Reshard paths by pair of types, since the sections of a block need the same paths.
struct Found<'a> {
    site: Site<'a>,
    known: &'a ReshardCache,
    found: Vec<(Type, Type, Vec<ReshardStep>)>,
}

impl Found<'_> {
    fn path(&mut self, from: &Type, to: &Type) -> Result<Vec<ReshardStep>, NoPath> {
        let known = self.found.iter().find(|(f, t, _)| is_alike(f, from) && is_alike(t, to));
        if let Some((_, _, path)) = known {
            return Ok(path.clone());
        }
        let path = self.known.cheapest(&self.site, from, to)?;
        self.found.push((from.clone(), to.clone(), path.clone()));
        Ok(path)
    }
}

/// Returns whether the types are equal and their dims have the same names.
fn is_alike(a: &Type, b: &Type) -> bool {
    a == b && a.dims.iter().zip(&b.dims).all(|(a, b)| a.name == b.name)
}

fn lower_section(paths: &mut Found<'_>, block: &mut Block, kind: SectionKind) -> Result<(), Fault> {
    let mut stmts: Vec<Stmt> = Vec::new();
    for stmt in std::mem::take(&mut block[kind].stmts) {
        let lowered = if stmt.op == Op::Reshard { lower(paths, block, &stmts, &stmt)? } else { vec![stmt] };
        stmts.extend(lowered);
    }
    block[kind].stmts = stmts;
    Ok(())
}

/// Emits the steps of one reshard. If two paths share a prefix, the second path continues from the first path's value.
fn lower(paths: &mut Found<'_>, block: &mut Block, before: &[Stmt], stmt: &Stmt) -> Result<Vec<Stmt>, NoPath> {
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
    let made = before.iter().find(|stmt| stmt.op == *op && stmt.operands == [value])?.results[0];
    (!is_stored(block, value) && !is_stored(block, made)).then_some(made)
}

/// Returns whether a statement is a collective that moves bytes between ranks.
pub(crate) fn communicates(stmt: &Stmt) -> bool {
    matches!(&stmt.op, Op::Collective(change) if change.communicates())
}

/// Combines equal collectives of `U` over the same axes into buckets of at most `limit` bytes. It combines the gradient
/// reductions at the start, and the gathers of updated parameters at the end, which nothing in `U` reads.
fn combine(block: &mut Block, mesh: &Mesh, limit: u64) {
    let mut rest = std::mem::take(&mut block[SectionKind::U].stmts);
    let mut combined = Vec::new();
    loop {
        let computed: Vec<Value> = rest.iter().flat_map(|stmt| stmt.results.clone()).collect();
        let (ready, others): (Vec<Stmt>, Vec<Stmt>) = rest
            .into_iter()
            .partition(|stmt| communicates(stmt) && stmt.operands.iter().all(|value| !computed.contains(value)));
        rest = others;
        if ready.is_empty() {
            break;
        }
        combined.extend(buckets(block, mesh, ready, limit));
    }
    let read: Vec<Value> =
        rest.iter().flat_map(|stmt| stmt.operands.clone()).chain(block[SectionKind::U].ret.clone()).collect();
    let (last, middle): (Vec<Stmt>, Vec<Stmt>) = rest.into_iter().partition(|stmt| {
        communicates(stmt) && stmt.results.iter().all(|value| !read.contains(value) || is_arg(block, *value))
    });
    combined.extend(middle);
    combined.extend(buckets(block, mesh, last, limit));
    block[SectionKind::U].stmts = combined;
}

fn is_arg(block: &Block, value: Value) -> bool {
    block.arg_kind(value).is_some()
}

/// Collective over the values of several.
struct Bucket {
    stmt: Stmt,
    /// Bytes of the operands on one rank.
    bytes: u64,
    /// Kind of the operands' partials.
    partial: Option<PartialKind>,
}

/// Collectives that do not depend on each other, with equal ones joined into buckets of at most `limit` bytes.
pub(crate) fn buckets(block: &Block, mesh: &Mesh, stmts: Vec<Stmt>, limit: u64) -> Vec<Stmt> {
    let mut buckets: Vec<Bucket> = Vec::new();
    for stmt in stmts {
        let bytes = stmt.operands.iter().map(|&value| block.ty(value).local_bytes(mesh)).sum::<u64>();
        let first = stmt.operands.first().and_then(|&value| block.ty(value).partial.as_ref());
        let partial = first.map(|partial| partial.kind);
        let fitting = buckets
            .iter_mut()
            .find(|bucket| bucket.stmt.op == stmt.op && bucket.partial == partial && bucket.bytes + bytes <= limit);
        match fitting {
            Some(bucket) => {
                bucket.stmt.results.extend(stmt.results);
                bucket.stmt.operands.extend(stmt.operands);
                bucket.bytes += bytes;
            }
            None => buckets.push(Bucket { stmt, bytes, partial }),
        }
    }
    buckets.into_iter().map(|bucket| bucket.stmt).collect()
}
