//! Bodies against the blocks that they come from: `statement`.

use super::Violation;
use crate::graph::{Block, Model, Section, SectionKind, Stmt};
use crate::ids::{BodyId, Token, Value};
use crate::ops::{Collective, Op};
use crate::program::{Body, BodyInstr, BodyKind, Program};
use std::collections::HashMap;

pub(super) fn check(model: &Model, program: &Program, found: &mut Vec<Violation>) {
    for (id, body) in &program.bodies {
        let sections = sections(model, body);
        if !sections.is_empty() {
            known(id, body, &sections, found);
        }
    }
    let trains = program.bodies.values().any(|body| body.kind.accumulates());
    for (id, block) in model.blocks.iter().filter(|_| trains) {
        let bodies: Vec<&Body> = program.bodies.values().filter(|body| body.block == Some(id)).collect();
        let (mut weights, mut updates) = (bodies.clone(), bodies);
        // Each of W and B does all of the section; R and U share it.
        weights.retain(|body| matches!(body.kind, BodyKind::W | BodyKind::B));
        updates.retain(|body| matches!(body.kind, BodyKind::R | BodyKind::U));
        if weights.is_empty() {
            stored(block, SectionKind::W, &[], found);
        }
        weights.into_iter().for_each(|body| stored(block, SectionKind::W, &[body], found));
        stored(block, SectionKind::U, &updates, found);
    }
}

/// The sections of a body; none for a body that only reduces a partial total.
fn sections<'m>(model: &'m Model, body: &Body) -> Vec<&'m Section> {
    if let Some(block) = body.block {
        let block = model.blocks.get(block);
        return block.into_iter().flat_map(|block| body.kind.sections().iter().map(|&kind| &block[kind])).collect();
    }
    let computes = body.instrs.iter().any(|instr| !instr.stmts().is_empty());
    let step = model.step.as_ref().filter(|_| computes);
    step.map(|step| &step.graph[SectionKind::F]).into_iter().collect()
}

/// Checks that the statements of a body are those of its sections, and its results those of the first section, unless that
/// is W or U.
fn known(id: BodyId, body: &Body, sections: &[&Section], found: &mut Vec<Violation>) {
    let mut started: HashMap<Token, (&Collective, &[Value])> = HashMap::new();
    let stmts: Vec<&Stmt> = sections.iter().flat_map(|section| &section.stmts).collect();
    for (at, instr) in body.instrs.iter().enumerate() {
        let known = match instr {
            BodyInstr::Compute(_) | BodyInstr::Fused(_) => {
                instr.stmts().iter().all(|stmt| stmts.iter().any(|other| same(stmt, other)))
            }
            BodyInstr::Start { token, collective, operands } => {
                started.insert(*token, (collective, operands));
                true
            }
            BodyInstr::Wait { token, results } => started.get(token).is_some_and(|&(collective, operands)| {
                stmts.iter().any(|stmt| {
                    let is_same = matches!(&stmt.op, Op::Collective(other) if other == collective);
                    is_same && stmt.operands == operands && stmt.results == *results
                })
            }),
            BodyInstr::Free(_) => true,
        };
        if !known {
            let text = format!("`@{}` has a statement that its block does not have", body.name);
            found.push(Violation::in_body("statement", id, at, text));
        }
    }
    let returned: &[Value] = if matches!(body.kind, BodyKind::W | BodyKind::U) { &[] } else { &sections[0].ret };
    if body.results != returned {
        let text = format!("`@{}` returns other values than its block", body.name);
        found.push(Violation::in_body("statement", id, body.instrs.len(), text));
    }
}

/// True if two statements are equal, apart from their source locations.
fn same(one: &Stmt, other: &Stmt) -> bool {
    let Stmt { results, accumulate, op, operands, comments: _, span: _ } = one;
    *results == other.results && *accumulate == other.accumulate && *op == other.op && *operands == other.operands
}

/// Checks that the bodies of a section store each of its gradients, parameters and states once.
fn stored(block: &Block, kind: SectionKind, bodies: &[&Body], found: &mut Vec<Violation>) {
    let made: Vec<Value> = bodies.iter().flat_map(|body| results(body)).collect();
    for stmt in &block[kind].stmts {
        if !stmt.accumulate && stmt.results.iter().all(|&result| block.arg_kind(result).is_none()) {
            continue;
        }
        for &value in &stmt.results {
            let times = made.iter().filter(|&&other| other == value).count();
            if times != 1 {
                let name = block.value_name(value);
                let text = format!("%{name} of `@{}` is stored {times} times, not once", block.name);
                found.push(Violation::missing("statement", text));
            }
        }
    }
}

fn results(body: &Body) -> impl Iterator<Item = Value> + '_ {
    body.instrs.iter().flat_map(BodyInstr::defines).copied()
}
