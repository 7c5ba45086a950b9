//! How large a problem would be, before it is built: the pairs of choices of all edges, at most.

use super::graph::DECIDED;
use crate::sections::instance_of;
use ir::graph::{Block, Model, Stmt};
use ir::ids::Value;
use ir::types::Type;
use std::collections::HashMap;

/// The most choices of a statement: what compares each with each takes their square.
const CHOICES: f64 = 4000.0;

/// Pairs of choices of all edges, infinite where a statement has too many choices, where so many units of axes are decided at once.
pub(super) fn pairs(model: &Model, units: usize) -> f64 {
    model.blocks.values().map(|block| of_block(block, units as i32)).sum()
}

/// The choices of a value's maker, and its different shardings.
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
    let of_value = |(value, readers): (&Value, &Vec<f64>)| -> f64 {
        let ty = block.ty(*value);
        let lying = || Made { choices: shardings(ty, units, 1.0), shardings: shardings(ty, units, 1.0) };
        let home = made.get(value).copied().unwrap_or_else(lying);
        let read: f64 = readers.iter().sum();
        // Several readers may share a copy: a sharding of it for each near one.
        let near = 1.0 + f64::from(units) * (ty.rank() as f64 + 1.0) + 2f64.powi(units);
        let copies = home.shardings * near;
        if readers.len() > 1 { copies * (home.choices + read) } else { home.choices * read }
    };
    readers.iter().map(of_value).sum()
}

/// At most: each unit goes to a letter, passes a sum on, or does nothing.
fn choices(block: &Block, stmt: &Stmt, units: i32) -> f64 {
    let Ok(Some(instance)) = instance_of(block, stmt) else { return 1.0 };
    let letters = instance.letters.iter().filter(|letter| letter.size > 1 && (!letter.whole || letter.marked_whole));
    let letters = letters.count() as f64;
    let groups = stmt.op.def().map_or(0, |def| def.linear(stmt.operands.len()).len()) as f64;
    (letters + 1.0).powi(units) + groups * ((letters + 2.0).powi(units) - (letters + 1.0).powi(units))
}

/// At most: each unit goes to an open dim, or to one of `others`.
fn shardings(ty: &Type, units: i32, others: f64) -> f64 {
    let open = ty.dims.iter().filter(|dim| dim.open && dim.size > 1).count();
    (open as f64 + others).powi(units)
}
