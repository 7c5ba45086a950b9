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
    let mut sums = Vec::with_capacity(groups.len());
    for (_, values) in groups {
        sums.extend(values.into_iter().reduce(|left, right| add(&mut stmts, left, right)));
    }
    sums.into_iter().reduce(|left, right| add(&mut stmts, left, right));
    length
}

/// Makes the next statement the sum of two values; returns the sum.
fn add(stmts: &mut std::slice::IterMut<'_, Stmt>, left: Value, right: Value) -> Value {
    let Some(stmt) = stmts.next() else { return left };
    stmt.operands = vec![left, right];
    stmt.results[0]
}

/// Leading statements that each add to the previous result, where no other statement reads the result and no pin
/// constrains it.
fn chain<'s>(block: &Block, next: &'s mut [Stmt], uses: &FxHashMap<Value, usize>) -> &'s mut [Stmt] {
    let mut length = usize::from(next.first().is_some_and(is_sum));
    while (1..next.len()).contains(&length) && is_sum(&next[length]) {
        let sum = next[length - 1].results[0];
        let is_open = block.ty(sum).dims.iter().all(|dim| dim.open);
        if !is_open || uses.get(&sum) != Some(&1) || !next[length].operands.contains(&sum) {
            break;
        }
        length += 1;
    }
    &mut next[..length]
}

/// Returns whether a statement adds two values.
fn is_sum(stmt: &Stmt) -> bool {
    !stmt.accumulate && stmt.operands.len() == 2 && stmt.op.facts().is_sum
}

/// Terms of a chain, in order.
fn terms(chain: &[Stmt]) -> Vec<Value> {
    let mut terms = chain[0].operands.clone();
    for pair in chain.windows(2) {
        terms.extend(pair[1].operands.iter().filter(|&&value| value != pair[0].results[0]));
    }
    terms
}
