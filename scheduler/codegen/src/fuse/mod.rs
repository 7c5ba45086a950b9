//! Fusion: statements of a body that treat the same rows alike become groups, each of which one kernel runs, so that values which
//! only its statements read stay in the cache.
//!
//! Candidates ([`candidates`]) are sets of statements that no other statement and no collective separates. A covering program
//! ([`choose`]) takes those of least time; then the body is ordered again, each group as one statement. A body that has groups stays as
//! it is.

mod candidates;
mod choose;
mod graph;

use crate::order::{Target, Unit, instructions};
use cost::Cluster;
use graph::Graph;
use ir::graph::{Model, Span, Stmt};
use ir::ids::{Token, Value};
use ir::mesh::Mesh;
use ir::ops::Op;
use ir::program::{Body, BodyInstr, Program};
use std::collections::{HashMap, HashSet};

/// Groups the statements of all bodies where that takes less time on the cluster.
pub fn fuse(model: &Model, program: &mut Program, cluster: &Cluster) {
    for body in program.bodies.values_mut() {
        if let Some(instrs) = grouped(cluster, &model.mesh, body) {
            body.instrs = instrs;
        }
    }
}

/// The instructions of a body with groups; `None` if it stays as it is.
fn grouped(cluster: &Cluster, mesh: &Mesh, body: &Body) -> Option<Vec<BodyInstr>> {
    let stmts = statements(body)?;
    let target = Target { cluster, mesh, values: &body.values };
    let graph = Graph::new(target, body, &stmts);
    let groups = choose::choose(&graph, &candidates::candidates(&graph));
    if groups.iter().all(|group| group.len() == 1) {
        return None;
    }
    let units: Vec<Unit> = groups.iter().map(|group| graph.unit(group)).collect();
    let args: HashSet<Value> = body.args.iter().map(|arg| arg.value).collect();
    let given = |value: Value| args.contains(&value) || body.results.contains(&value) || body.keeps.contains(&value);
    Some(instructions(target, &units, |value| !given(value)))
}

/// The statements of a body, collectives among them, in order of their starts; `None` if some are in groups.
fn statements(body: &Body) -> Option<Vec<Stmt>> {
    let mut stmts: Vec<Stmt> = Vec::new();
    let mut started: HashMap<Token, usize> = HashMap::new();
    for instr in &body.instrs {
        match instr {
            BodyInstr::Compute(stmt) => stmts.push(stmt.clone()),
            BodyInstr::Start { token, collective, operands } => {
                started.insert(*token, stmts.len());
                let (op, operands) = (Op::Collective(collective.clone()), operands.clone());
                let (results, comments) = (Vec::new(), Vec::new());
                stmts.push(Stmt { results, accumulate: false, op, operands, comments, span: Span::default() });
            }
            BodyInstr::Wait { token, results } => stmts[*started.get(token)?].results.clone_from(results),
            BodyInstr::Free(_) => {}
            BodyInstr::Fused(_) => return None,
        }
    }
    Some(stmts)
}

#[cfg(test)]
mod tests;
