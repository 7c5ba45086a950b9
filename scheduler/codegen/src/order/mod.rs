//! Instructions of a body from its statements: their order, the starts and waits of collectives, and `free`.

mod overlap;

use self::overlap::{OverlapStep, overlap};
use fusion::{Target, Unit};
use ir::graph::Stmt;
use ir::ids::{Token, Value};
use ir::ops::Op;
use ir::program::BodyInstr;
use ir::saved::unique;
use std::collections::HashMap;

/// The instructions of units in an order that hides collectives. Values that are the body's `own` are freed after their last use.
pub(crate) fn instructions(target: Target<'_>, units: &[Unit], own: impl Fn(Value) -> bool) -> Vec<BodyInstr> {
    let steps = overlap(target, units);

    let mut last: HashMap<Value, usize> = HashMap::new();
    for (at, &step) in steps.iter().enumerate() {
        last.extend(touched(step, units).map(|value| (value, at)));
    }
    let mut instrs = Vec::new();
    for (at, &step) in steps.iter().enumerate() {
        instrs.push(instruction(step, units));
        let dead: Vec<Value> = touched(step, units).filter(|&value| own(value) && last[&value] == at).collect();
        if !dead.is_empty() {
            instrs.push(BodyInstr::Free(dead));
        }
    }
    instrs
}

/// Values that a step reads or makes. What a collective reads is needed until its wait.
fn touched(step: OverlapStep, units: &[Unit]) -> impl Iterator<Item = Value> + use<> {
    let unit = match step {
        OverlapStep::Compute(at) | OverlapStep::Wait(at) => Some(&units[at]),
        OverlapStep::Start(_) => None,
    };
    let values = unit.into_iter().flat_map(|unit| unit.reads().into_iter().chain(unit.leaves().iter().copied()));
    unique(values.collect::<Vec<_>>().into_iter())
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
