//! Sums of several values in one order: the stream first, then by definition, as the builders of families write residual sums. What the
//! experts of a token and a net beside them give is summed on its own.

use crate::atoms::Atoms;
use crate::blocks::Segment;
use crate::program::{Action, Argument, LoweredModel, Statement, Var};
use ir::ops::BinaryKind;
use std::collections::{BTreeMap, BTreeSet};

/// The two values of a sum of values of the same dims.
fn terms(program: &LoweredModel, atoms: &Atoms, statement: &Statement) -> Option<[Var; 2]> {
    match (&statement.action, statement.operands.as_slice()) {
        (Action::Binary(BinaryKind::Add), &[Argument::Var(a), Argument::Var(b)])
            if program.dims(atoms, a) == program.dims(atoms, b) =>
        {
            Some([a, b])
        }
        _ => None,
    }
}

/// Orders the sums of a segment. Sums that nothing else reads are joined with the sum that reads them.
pub(crate) fn order(program: &LoweredModel, atoms: &Atoms, segment: &mut Segment) {
    let mut readers: BTreeMap<Var, usize> = BTreeMap::new();
    for operand in segment.statements.iter().flat_map(|statement| &statement.operands) {
        if let Argument::Var(var) = operand {
            *readers.entry(*var).or_insert(0) += 1;
        }
    }
    let sums: BTreeMap<Var, [Var; 2]> = segment
        .statements
        .iter()
        .filter_map(|statement| Some((statement.result, terms(program, atoms, statement)?)))
        .collect();
    let experts: BTreeSet<Var> = segment
        .statements
        .iter()
        .filter(|statement| statement.action == Action::Ungroup)
        .map(|statement| statement.result)
        .collect();
    let inner: BTreeSet<Var> = sums
        .values()
        .flatten()
        .copied()
        .filter(|term: &Var| {
            let is_of_experts = sums.get(term).is_none_or(|terms| terms.iter().any(|term| experts.contains(term)));
            !is_of_experts && readers.get(term) == Some(&1) && !segment.outputs.contains(term)
        })
        .collect();
    let places: BTreeMap<Var, usize> =
        segment.statements.iter().enumerate().map(|(at, statement)| (statement.result, at + 1)).collect();
    let mut ordered = Vec::new();
    for statement in std::mem::take(&mut segment.statements) {
        let sum = statement.result;
        if inner.contains(&sum) {
            continue;
        }
        let Some(&first) = sums.get(&sum) else {
            ordered.push(statement);
            continue;
        };
        let (mut rest, mut all, mut vars) = (first.to_vec(), Vec::new(), Vec::new());
        while let Some(term) = rest.pop() {
            if inner.contains(&term) {
                rest.extend(sums[&term]);
                vars.push(term);
            } else {
                all.push(term);
            }
        }
        // Values that the segment reads come before all that it computes.
        all.sort_by_key(|term| (places.get(term).copied().unwrap_or(0), term.0));
        vars.push(sum);
        for (at, &result) in vars.iter().enumerate() {
            let before = if at == 0 { all[0] } else { vars[at - 1] };
            let operands = [before, all[at + 1]].map(Argument::Var).to_vec();
            ordered.push(Statement { operands, result, ..statement.clone() });
        }
    }
    segment.statements = ordered;
}
