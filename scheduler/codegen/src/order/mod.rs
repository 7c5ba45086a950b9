//! Instructions of a body from its statements: their order, the starts and waits of collectives, and `free`.

mod overlap;

pub(crate) use self::overlap::Uses;
use self::overlap::{OverlapStep, overlap};
use cost::{Cluster, seconds_of_group, seconds_of_stmt};
use ir::entity::PrimaryMap;
use ir::fused::Fused;
use ir::graph::{Stmt, ValueData};
use ir::ids::{Token, Value};
use ir::mesh::Mesh;
use ir::ops::Op;
use ir::program::BodyInstr;
use ir::saved::unique;
use std::collections::HashMap;

/// The context of an order.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) mesh: &'a Mesh,
    pub(crate) values: &'a PrimaryMap<Value, ValueData>,
}

/// A statement, or a group that runs as one.
#[derive(Clone, Debug)]
pub(crate) enum Unit {
    Stmt(Stmt),
    Group(Fused),
}

impl Unit {
    /// The values that it reads.
    pub(crate) fn reads(&self) -> Vec<Value> {
        match self {
            Unit::Stmt(stmt) => stmt.operands.clone(),
            Unit::Group(fused) => fused.reads(),
        }
    }

    /// The values that it leaves.
    pub(crate) fn leaves(&self) -> &[Value] {
        match self {
            Unit::Stmt(stmt) => &stmt.results,
            Unit::Group(fused) => &fused.outs,
        }
    }

    /// Its statement, if that is a collective.
    pub(crate) fn collective(&self) -> Option<&Stmt> {
        match self {
            Unit::Stmt(stmt) if matches!(stmt.op, Op::Collective(_)) => Some(stmt),
            _ => None,
        }
    }

    /// Its time on a rank.
    pub(crate) fn seconds(&self, target: Target<'_>) -> f64 {
        match self {
            Unit::Stmt(stmt) => seconds_of_stmt(target.cluster, target.mesh, target.values, stmt),
            Unit::Group(fused) => seconds_of_group(target.cluster, target.mesh, target.values, fused),
        }
    }
}

/// The instructions of units in an order that hides collectives. Values that are the body's `own` are freed after their last use.
pub(crate) fn instructions(target: Target<'_>, units: &[Unit], own: impl Fn(Value) -> bool) -> Vec<BodyInstr> {
    let steps = overlap(target, units);
    // What a collective reads is needed until its wait.
    let touched = |step: OverlapStep| {
        let unit = match step {
            OverlapStep::Compute(at) | OverlapStep::Wait(at) => Some(&units[at]),
            OverlapStep::Start(_) => None,
        };
        let values = unit.into_iter().flat_map(|unit| unit.reads().into_iter().chain(unit.leaves().iter().copied()));
        unique(values.collect::<Vec<_>>().into_iter())
    };
    let mut last: HashMap<Value, usize> = HashMap::new();
    for (at, &step) in steps.iter().enumerate() {
        last.extend(touched(step).map(|value| (value, at)));
    }
    let mut instrs = Vec::new();
    for (at, &step) in steps.iter().enumerate() {
        instrs.push(instruction(step, units));
        let dead: Vec<Value> = touched(step).filter(|&value| own(value) && last[&value] == at).collect();
        if !dead.is_empty() {
            instrs.push(BodyInstr::Free(dead));
        }
    }
    instrs
}

fn instruction(step: OverlapStep, units: &[Unit]) -> BodyInstr {
    let (OverlapStep::Compute(at) | OverlapStep::Start(at) | OverlapStep::Wait(at)) = step;
    let token = Token::from_u32(at as u32);
    match (step, &units[at]) {
        (_, Unit::Group(fused)) => BodyInstr::Fused(fused.clone()),
        (OverlapStep::Wait(_), Unit::Stmt(stmt)) => BodyInstr::Wait { token, results: stmt.results.clone() },
        (OverlapStep::Start(_), Unit::Stmt(Stmt { op: Op::Collective(collective), operands, .. })) => {
            BodyInstr::Start { token, collective: collective.clone(), operands: operands.clone() }
        }
        (_, Unit::Stmt(stmt)) => BodyInstr::Compute(stmt.clone()),
    }
}
