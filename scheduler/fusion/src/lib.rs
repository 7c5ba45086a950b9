//! Choice of groups: statements that treat the same rows alike and run as one kernel, so that values which only they read stay in
//! the cache.
//!
//! The crate is above `ir`, `planner/cost` and `planner/solver`. Code generation writes the groups into bodies; the costs of stages
//! count them before there is a body.
//!
//! Candidates (`candidates.rs`) are sets of statements that no other statement and no collective separates. A covering program
//! (`choose.rs`) takes those of least time.
//!
//! A thread runs a group on rows that fit its cache, and values that only the group reads have no place in the arena.
//! Elementwise ops and sums may follow a product, and a cast an update of weights in place. No bit changes: sums over rows
//! are made by chunks of rows in groups and alone. The answer depends on shapes and seconds alone. Estimates price hundreds
//! of blocks in the time of one covering program: they join statements by a greedy rule with exact bytes (`cost::profile`).

mod apart;
mod candidates;
mod choose;
mod graph;
mod unit;

pub use apart::{Neighbours, neighbours};
pub use unit::{Target, Unit, Uses};

use graph::Graph;
use ir::graph::Stmt;
use ir::ids::Value;
use std::collections::HashSet;

/// Puts the statements of a body, in order, into groups where that takes less time. `given` are the values that exist before or
/// after them: arguments, stored and saved values, and results.
///
/// A unit follows all that it needs.
pub fn units(target: Target<'_>, given: HashSet<Value>, stmts: &[Stmt]) -> Vec<Unit> {
    let graph = Graph::new(target, given, stmts);
    let groups = choose::choose(&graph, &candidates::candidates(&graph));
    groups.iter().map(|group| graph.unit(group)).collect()
}

#[cfg(test)]
mod tests;
