//! Other orders of statements, and texts that do not depend on the order.

use ir::graph::Stmt;
use ir::ids::Value;
use ir::text::{File, print};

/// The statements in another order in which each value is defined before it is read.
pub(crate) fn shuffled(stmts: &[Stmt], state: &mut u64) -> Vec<Stmt> {
    let mut left = stmts.to_vec();
    let mut order: Vec<Stmt> = Vec::new();
    while !left.is_empty() {
        let waits = |stmt: &Stmt| {
            let defined_later = |value: &Value| left.iter().any(|other| other.results.contains(value));
            stmt.operands.iter().any(defined_later)
        };
        let ready: Vec<usize> = (0..left.len()).filter(|&place| !waits(&left[place])).collect();
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.push(left.remove(ready[(*state >> 33) as usize % ready.len()]));
    }
    order
}

/// The statements of the block, sorted, without names that are numbers.
pub(crate) fn statements(file: &File) -> Vec<String> {
    let text = print(file).replace(['(', ')', ',', ':'], " ");
    let is_name = |word: &&str| word.strip_prefix('%').is_none_or(|name| name.parse::<u32>().is_err());
    let words = |line: &str| line.split_whitespace().filter(is_name).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = text.lines().map(words).collect();
    lines.sort();
    lines
}
