//! Bodies against the blocks that they come from: `statement`.

use super::Violation;
use crate::graph::{Block, Model, Section, SectionKind, Stmt};
use crate::ids::{BlockId, BodyId, Token, Value};
use crate::ops::{Collective, Op};
use crate::program::{Body, BodyInstr, BodyKind, Program};
use std::collections::HashMap;

pub(super) fn check(model: &Model, program: &Program, found: &mut Vec<Violation>) {
    for (id, body) in &program.bodies {
        if let Some(section) = section(model, body) {
            known(id, body, section, found);
        }
    }
    let trains = program.bodies.values().any(|body| body.kind == BodyKind::W);
    for (id, block) in model.blocks.iter().filter(|_| trains) {
        [SectionKind::W, SectionKind::U].into_iter().for_each(|kind| stored(program, (id, block), kind, found));
    }
}

/// The section that a body is of; none for one that only pays what a total owes.
fn section<'m>(model: &'m Model, body: &Body) -> Option<&'m Section> {
    match (body.kind.section(), body.block) {
        (Some(kind), Some(block)) => model.blocks.get(block).map(|block| &block[kind]),
        _ if body.instrs.iter().any(|instr| matches!(instr, BodyInstr::Compute(_))) => {
            model.step.as_ref().map(|step| &step.graph[SectionKind::F])
        }
        _ => None,
    }
}

/// All that a body does and returns is its section's.
fn known(id: BodyId, body: &Body, section: &Section, found: &mut Vec<Violation>) {
    let mut started: HashMap<Token, (&Collective, &[Value])> = HashMap::new();
    for (at, instr) in body.instrs.iter().enumerate() {
        let known = match instr {
            BodyInstr::Compute(stmt) => section.stmts.iter().any(|other| same(stmt, other)),
            BodyInstr::Start { token, collective, operands } => {
                started.insert(*token, (collective, operands));
                true
            }
            BodyInstr::Wait { token, results } => started.get(token).is_some_and(|&(collective, operands)| {
                let is_change = |op: &Op| matches!(op, Op::Collective(other) if other == collective);
                section.stmts.iter().any(|s| is_change(&s.op) && s.operands == operands && s.results == *results)
            }),
            BodyInstr::Free(_) => true,
        };
        if !known {
            let text = format!("`@{}` does what its block does not say", body.name);
            found.push(Violation::in_body("statement", id, at, text));
        }
    }
    let returned: &[Value] = if matches!(body.kind, BodyKind::W | BodyKind::U) { &[] } else { &section.ret };
    if body.results != returned {
        let text = format!("`@{}` returns other values than its block", body.name);
        found.push(Violation::in_body("statement", id, body.instrs.len(), text));
    }
}

/// Whether two statements are the same, wherever they stand in a text.
fn same(one: &Stmt, other: &Stmt) -> bool {
    let parts = |stmt: &Stmt| (stmt.results.clone(), stmt.accumulate, stmt.operands.clone());
    parts(one) == parts(other) && one.op == other.op
}

/// What a section stores in gradients, parameters and states, its bodies store once.
fn stored(program: &Program, (id, block): (BlockId, &Block), kind: SectionKind, found: &mut Vec<Violation>) {
    let of_section = |body: &&Body| body.block == Some(id) && body.kind.section() == Some(kind);
    let made: Vec<Value> = program.bodies.values().filter(of_section).flat_map(results).collect();
    let stores = |stmt: &&Stmt| stmt.accumulate || stmt.results.iter().any(|&v| block.arg_kind(v).is_some());
    for &value in block[kind].stmts.iter().filter(stores).flat_map(|stmt| &stmt.results) {
        let times = made.iter().filter(|&&other| other == value).count();
        if times != 1 {
            let text = format!("%{} of `@{}` is stored {times} times, not once", block.value_name(value), block.name);
            found.push(Violation::missing("statement", text));
        }
    }
}

fn results(body: &Body) -> impl Iterator<Item = Value> + '_ {
    let of = |instr: &BodyInstr| match instr {
        BodyInstr::Compute(stmt) => stmt.results.clone(),
        BodyInstr::Wait { results, .. } => results.clone(),
        BodyInstr::Start { .. } | BodyInstr::Free(_) => Vec::new(),
    };
    body.instrs.iter().flat_map(of)
}
