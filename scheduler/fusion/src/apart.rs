//! Reasons why neighbours are not in one group.

use crate::graph::Graph;
use crate::unit::{Target, Unit};
use cost::{is_memory_bound, local_type};
use ir::graph::Stmt;
use ir::ids::Value;
use std::collections::{HashMap, HashSet};

/// Two kernels that have a tensor in common.
#[derive(Clone, PartialEq, Debug)]
pub struct Neighbours {
    /// The tensor.
    pub value: Value,
    /// Its bytes on a rank, which each of the two moves.
    pub bytes: u64,
    /// The numbers of the two among the units.
    pub units: [usize; 2],
    /// Why they are two.
    pub reason: String,
}

/// Why statements, by their numbers, are no group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Misfit {
    NoRows(usize),
    ReadsWhole(usize),
    TwoProducts,
    AfterProduct(usize),
    OtherRows,
    /// The bytes of a row.
    RowBytes(u64),
}

/// The pairs of neighbours among the units of a body, largest tensor first. One of the two computes the tensor,
/// or reads it first, and the other one reads it. Products and attention are neighbours of other kernels only.
pub fn neighbours(target: Target<'_>, given: HashSet<Value>, units: &[Unit]) -> Vec<Neighbours> {
    let stmts: Vec<Stmt> = units.iter().flat_map(|unit| unit.stmts().iter().cloned()).collect();
    let unit_of: Vec<usize> = units.iter().zip(0..).flat_map(|(unit, at)| vec![at; unit.stmts().len()]).collect();
    let graph = Graph::new(target, given, &stmts);
    let mut all: Vec<Neighbours> = Vec::new();
    let mut first: HashMap<Value, usize> = HashMap::new();
    for (unit, at) in units.iter().zip(0..) {
        for value in unit.reads() {
            let pair = [*first.entry(value).or_insert(at), at];
            let is_new = pair[0] != at && !all.iter().any(|known| known.units == pair);
            if is_new && are_kernels(pair.map(|at| &units[at])) {
                let bytes = local_type(&target.scope.values[value].ty, target.scope.mesh).bytes();
                let reason = reason(&graph, |stmt| pair.contains(&unit_of[stmt]));
                all.push(Neighbours { value, bytes, units: pair, reason });
            }
        }
        first.extend(unit.leaves().iter().map(|&value| (value, at)));
    }
    all.sort_by_key(|pair| std::cmp::Reverse(pair.bytes));
    all
}

/// True if both are kernels, one of which at least is neither a product nor attention.
fn are_kernels(units: [&Unit; 2]) -> bool {
    let mut stmts = units.iter().flat_map(|unit| unit.stmts());
    stmts.all(|stmt| stmt.op.kernel().is_some()) && units.iter().any(|unit| unit.stmts().iter().any(is_memory_bound))
}

/// Why statements are not one group.
fn reason(graph: &Graph<'_>, within: impl Fn(usize) -> bool) -> String {
    let closed = graph.closure(&within);

    let between = closed.iter().find(|&&at| !within(at) && !graph.groups(at));
    if let Some(&at) = between {
        return format!("`{}` is between", graph.op_name(at));
    }
    match graph.misfit(&closed) {
        Some(Misfit::NoRows(at)) => format!("`{}` does not go row by row", graph.op_name(at)),
        Some(Misfit::ReadsWhole(at)) => format!("`{}` reads all rows at once", graph.op_name(at)),
        Some(Misfit::TwoProducts) => "a group begins with one product".to_string(),
        Some(Misfit::AfterProduct(at)) => {
            format!("`{}` does not work on single elements of the product", graph.op_name(at))
        }
        Some(Misfit::OtherRows) => "the rows of the two differ".to_string(),
        Some(Misfit::RowBytes(bytes)) => {
            format!("a row has {bytes} bytes, more than {}", ir::fused::ROW_BYTES)
        }
        None => "together they save no time".to_string(),
    }
}
