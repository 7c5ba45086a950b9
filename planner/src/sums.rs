//! Reassociation of sums of three or more terms: equally partial terms are added first and reduced once.

use ir::graph::{Block, Stmt};
use ir::ids::Value;
use ir::mesh::Axes;
use rustc_hash::FxHashMap;

/// Reassociates the leading chain of additions so that equally partial terms are added first. Returns the number of
/// statements in the chain.
pub(crate) fn regroup(block: &Block, next: &mut [Stmt], uses: &FxHashMap<Value, usize>) -> usize {
    let chain = chain(block, next, uses);
    let length = chain.len();
    if length < 2 {
        return length;
    }
    let mut groups: Vec<(Axes, Vec<Value>)> = Vec::new();
    for value in terms(chain) {
        let unreduced = block.ty(value).partial_axes();
        match groups.iter_mut().find(|(axes, _)| *axes == unreduced) {
            Some((_, values)) => values.push(value),
            None => groups.push((unreduced, vec![value])),
        }
    }
    if groups.iter().all(|(unreduced, values)| unreduced.is_empty() || values.len() == 1) {
        return length;
    }
    let mut stmts = chain.iter_mut();
    let mut add = |left: Value, right: Value| {
        let Some(stmt) = stmts.next() else { return left };
        stmt.operands = vec![left, right];
        stmt.results[0]
    };
    let sums: Vec<Value> = groups.into_iter().filter_map(|(_, values)| values.into_iter().reduce(&mut add)).collect();
    sums.into_iter().reduce(&mut add);
    length
}

/// Leading statements that each add to the previous result, where no other statement reads the result and no pin
/// constrains it.
fn chain<'s>(block: &Block, next: &'s mut [Stmt], uses: &FxHashMap<Value, usize>) -> &'s mut [Stmt] {
    let is_sum = |stmt: &Stmt| !stmt.accumulate && stmt.operands.len() == 2 && stmt.op.facts().is_sum;
    let passes_on = |stmt: &Stmt, to: &Stmt| {
        let sum = stmt.results[0];
        let is_open = block.ty(sum).dims.iter().all(|dim| dim.open);
        is_open && uses.get(&sum) == Some(&1) && to.operands.contains(&sum)
    };
    let mut length = usize::from(next.first().is_some_and(is_sum));
    while (1..next.len()).contains(&length) && is_sum(&next[length]) && passes_on(&next[length - 1], &next[length]) {
        length += 1;
    }
    &mut next[..length]
}

/// Terms of a chain, in order.
fn terms(chain: &[Stmt]) -> Vec<Value> {
    let mut terms = chain[0].operands.clone();
    for pair in chain.windows(2) {
        terms.extend(pair[1].operands.iter().filter(|&&value| value != pair[0].results[0]));
    }
    terms
}
