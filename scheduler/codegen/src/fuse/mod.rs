//! Fusion of a program: each body is ordered again with its statements in groups ([`fusion::units`]). A body that has groups stays as
//! it is.

use crate::order::instructions;
use cost::{Platform, Scope};
use fusion::{Neighbours, Target, Unit, units};
use ir::graph::{Model, Span, Stmt};
use ir::ids::{Token, Value};
use ir::ops::Op;
use ir::program::{Body, BodyInstr, Program};
use std::collections::{HashMap, HashSet};

/// Groups the statements of all bodies where that takes less time on the platform.
pub fn fuse(model: &Model, program: &mut Program, platform: &Platform<'_>) {
    for body in program.bodies.values_mut() {
        if let Some(instrs) = grouped(platform, model, body) {
            body.instrs = instrs;
        }
    }
}

/// The instructions of a body with groups; `None` if it stays as it is.
fn grouped(platform: &Platform<'_>, model: &Model, body: &Body) -> Option<Vec<BodyInstr>> {
    let before = units_of(body);
    if before.iter().any(Unit::is_group) {
        return None;
    }
    let stmts: Vec<Stmt> = before.iter().flat_map(|unit| unit.stmts().iter().cloned()).collect();
    let (target, given) = (Target { platform, scope: Scope::of(model, &body.values) }, given(body));
    let units = units(target, given.clone(), &stmts);
    units.iter().any(Unit::is_group).then(|| instructions(target, &units, |value| !given.contains(&value)))
}

/// Pairs of kernels of a body with a tensor in common, and why they are no group ([`fusion::neighbours`]).
pub fn neighbours(platform: &Platform<'_>, model: &Model, body: &Body) -> Vec<Neighbours> {
    fusion::neighbours(Target { platform, scope: Scope::of(model, &body.values) }, given(body), &units_of(body))
}

/// Values that exist before or after a body.
fn given(body: &Body) -> HashSet<Value> {
    let args = body.args.iter().map(|arg| arg.value);
    args.chain(body.results.iter().chain(&body.keeps).copied()).collect()
}

/// The statements and groups of a body, collectives among them, in order of their starts.
pub fn units_of(body: &Body) -> Vec<Unit> {
    let mut results: HashMap<Token, &[Value]> = HashMap::new();
    for instr in &body.instrs {
        if let BodyInstr::Wait { token, results: waited } = instr {
            results.insert(*token, waited);
        }
    }
    let units = body.instrs.iter().filter_map(|instr| match instr {
        BodyInstr::Compute(stmt) => Some(Unit::Stmt(stmt.clone())),
        BodyInstr::Fused(fused) => Some(Unit::Group(fused.clone())),
        BodyInstr::Start { token, collective, operands } => {
            let (op, operands) = (Op::Collective(collective.clone()), operands.clone());
            let results = results.get(token).map_or_else(Vec::new, |results| results.to_vec());
            let comments = Vec::new();
            Some(Unit::Stmt(Stmt { results, accumulate: false, op, operands, comments, span: Span::default() }))
        }
        BodyInstr::Wait { .. } | BodyInstr::Free(_) => None,
    });
    units.collect()
}

#[cfg(test)]
mod tests;
