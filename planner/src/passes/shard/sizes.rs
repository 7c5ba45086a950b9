//! Upper bound on a problem's size before it is built: the pairs of choices of all edges.

use super::graph::DECIDED;
use crate::sections::instance_of;
use ir::graph::{Block, Model, Stmt};
use ir::ids::Value;
use ir::types::Type;
use std::collections::HashMap;

/// Largest number of choices of a statement; pairwise comparison is quadratic in the number.
const CHOICES: f64 = 4000.0;

/// Pairs of choices of all edges if `units` units of axes are decided at once; infinite if a statement has too many
/// choices.
pub(super) fn pairs(model: &Model, units: usize) -> f64 {
    model.blocks.values().map(|block| of_block(block, units as i32)).sum()
}

/// Number of choices of a value's producer, and of distinct shardings.
#[derive(Clone, Copy)]
struct Made {
    choices: f64,
    shardings: f64,
}

fn of_block(block: &Block, units: i32) -> f64 {
    let mut made: HashMap<Value, Made> = HashMap::new();
    let mut readers: HashMap<Value, Vec<f64>> = HashMap::new();
    for stmt in DECIDED.iter().flat_map(|&kind| &block[kind].stmts) {
        let choices = choices(block, stmt, units);
        if units > 1 && choices > CHOICES {
            return f64::INFINITY;
        }
        for &value in &stmt.operands {
            readers.entry(value).or_default().push(choices);
        }
        for &value in &stmt.results {
            made.insert(value, Made { choices, shardings: shardings(block.ty(value), units, 2.0).min(choices) });
        }
    }
    let mut pairs = 0.0;
    for (value, readers) in &readers {
        let ty = block.ty(*value);
        let home = made.get(value).copied().unwrap_or_else(|| {
            let shardings = shardings(ty, units, 1.0);
            Made { choices: shardings, shardings }
        });
        let read: f64 = readers.iter().sum();
        // Several readers may share a copy, with one sharding for each neighbour.
        let near = 1.0 + f64::from(units) * (ty.rank() as f64 + 1.0) + 2f64.powi(units);
        let copies = home.shardings * near;
        pairs += if readers.len() > 1 { copies * (home.choices + read) } else { home.choices * read };
    }
    pairs
}

/// Upper bound on strategies: each unit shards a factor, passes a partial sum through, or is unused.
fn choices(block: &Block, stmt: &Stmt, units: i32) -> f64 {
    let Ok(Some(instance)) = instance_of(block, stmt) else { return 1.0 };
    let factors =
        instance.factors.iter().filter(|factor| factor.size > 1 && (!factor.replicated || factor.marked_replicated));
    let factors = factors.count() as f64;
    let groups = stmt.op.facts().linear.groups(stmt.operands.len()).len() as f64;
    (factors + 1.0).powi(units) + groups * ((factors + 2.0).powi(units) - (factors + 1.0).powi(units))
}

/// Upper bound on shardings: each unit shards an open dim, or has one of `others` other uses.
fn shardings(ty: &Type, units: i32, others: f64) -> f64 {
    let open = ty.dims.iter().filter(|dim| dim.open && dim.size > 1).count();
    (open as f64 + others).powi(units)
}
