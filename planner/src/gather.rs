//! Parameters that stay gathered: what makes whole parameters of ZeRO's shards moves to the section `G`, which runs once a step.
//!
//! A collective moves if it depends on parameters alone. With it move the statements that it needs, and the collectives that only
//! rearrange its result. Equal statements of several sections become one. Gathers over the same axes are joined into buckets.

use crate::passes::collectives::{buckets, communicates};
use ir::graph::{ArgKind, Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::ops::Op;
use std::collections::{HashMap, HashSet};
use transforms::renumber::renumber;

/// The sections that run in every micro-batch.
const OF_MICROBATCHES: [SectionKind; 3] = [SectionKind::F, SectionKind::I, SectionKind::W];

/// Gathers the parameters of every block once a step, in buckets of at most `bucket_bytes`.
pub fn gather_once(model: &mut Model, bucket_bytes: u64) {
    let mesh = model.mesh.clone();
    for block in model.blocks.values_mut() {
        in_block(block, &mesh, bucket_bytes);
        renumber(block);
    }
}

fn in_block(block: &mut Block, mesh: &Mesh, bucket_bytes: u64) {
    let moving = moving(block);
    let mut gathered = std::mem::take(&mut block[SectionKind::G].stmts);
    let mut same: HashMap<Value, Value> = HashMap::new();
    for kind in OF_MICROBATCHES {
        let section = &mut block[kind];
        let (moved, stays): (Vec<Stmt>, Vec<Stmt>) = std::mem::take(&mut section.stmts)
            .into_iter()
            .partition(|stmt| stmt.results.iter().any(|value| moving.contains(value)));
        section.stmts = stays;
        for mut stmt in moved {
            rename(&mut stmt.operands, &same);
            match gathered.iter().find(|other| other.op == stmt.op && other.operands == stmt.operands) {
                Some(other) => same.extend(stmt.results.iter().copied().zip(other.results.iter().copied())),
                None => gathered.push(stmt),
            }
        }
        section.stmts.iter_mut().for_each(|stmt| rename(&mut stmt.operands, &same));
        rename(&mut section.ret, &same);
    }
    block[SectionKind::G].stmts = joined(block, mesh, gathered, bucket_bytes);
}

fn rename(values: &mut [Value], same: &HashMap<Value, Value>) {
    values.iter_mut().for_each(|value| *value = same.get(value).copied().unwrap_or(*value));
}

/// The results of the statements that move.
fn moving(block: &Block) -> HashSet<Value> {
    let mut of_params: HashSet<Value> = block.args_of(ArgKind::Param).collect();
    let mut moving: HashSet<Value> = HashSet::new();
    let stmts: Vec<&Stmt> = OF_MICROBATCHES.into_iter().flat_map(|kind| &block[kind].stmts).collect();
    for stmt in &stmts {
        if !is_of_params(stmt, &of_params) {
            continue;
        }
        of_params.extend(&stmt.results);
        let Op::Collective(change) = &stmt.op else { continue };
        if change.communicates() || stmt.operands.iter().any(|value| moving.contains(value)) {
            moving.extend(&stmt.results);
        }
    }
    // The statements that they need.
    for stmt in stmts.iter().rev().filter(|stmt| is_of_params(stmt, &of_params)) {
        if stmt.results.iter().any(|value| moving.contains(value)) {
            moving.extend(stmt.operands.iter().filter(|&&value| block.arg_kind(value).is_none()));
            moving.extend(&stmt.results);
        }
    }
    moving
}

/// True if a statement gives the same in every micro-batch of a step: it reads parameters alone, and draws no
/// numbers.
fn is_of_params(stmt: &Stmt, of_params: &HashSet<Value>) -> bool {
    let draws = stmt.op.extras().random.is_some();
    let reads_params = !stmt.operands.is_empty() && stmt.operands.iter().all(|value| of_params.contains(value));
    reads_params && !stmt.accumulate && !draws
}

/// Statements whose communicating collectives are joined where they are ready together.
fn joined(block: &Block, mesh: &Mesh, stmts: Vec<Stmt>, bucket_bytes: u64) -> Vec<Stmt> {
    let (mut rest, mut joined) = (stmts, Vec::new());
    while !rest.is_empty() {
        let to_come: HashSet<Value> = rest.iter().flat_map(|stmt| stmt.results.iter().copied()).collect();
        let (ready, others): (Vec<Stmt>, Vec<Stmt>) =
            rest.into_iter().partition(|stmt| !stmt.operands.iter().any(|value| to_come.contains(value)));
        let (moved, made): (Vec<Stmt>, Vec<Stmt>) = ready.into_iter().partition(communicates);
        joined.extend(made);
        joined.extend(buckets(block, mesh, moved, bucket_bytes));
        rest = others;
    }
    joined
}
