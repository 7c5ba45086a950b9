//! Decides all shardings of a model by their cost, with no rule of thumb: the strategies of all statements, the layouts of
//! what passes between blocks, and where parameters and their states lie are one assignment problem, as in Alpa (Zheng et
//! al. 2022, section 4), over forward and backward together. What a repeated block gives lies as what it takes.
//!
//! Seconds are those of ops on local shapes, times the runs of their block, and of the cheapest ways between layouts. A value
//! that the backward reads is held by every run of its block; parameters, gradients and states are held all the time.

mod apply;
mod copies;
mod graph;
mod lies;
mod params;
mod prices;
mod problem;
mod strategy;
#[cfg(test)]
mod tests;
mod weights;

use crate::PlanError;
use crate::ports::Ports;
use crate::reshard::Site;
use apply::Chosen;
use cost::Cluster;
use graph::{Builder, DECIDED};
use ir::goal::{Goal, Sharding};
use ir::graph::Model;
use ir::mesh::Axes;
use ir::ops::Op;
use params::Classes;
use prices::Prices;
use problem::Problem;
use solver::Status;
use solver::assign::{Assignment, Budget, Solution};
use weights::Weights;

/// What deciding the shardings of a model came to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decided {
    /// Seconds of a step by the costs that were added up.
    pub seconds: f64,
    /// No choice of the same strategies takes less.
    pub bound: f64,
    /// Whether the two are proved to be equal.
    pub is_proved: bool,
    /// The most bytes that a device holds.
    pub peak: u64,
    /// Statements, boundaries, parameters and copies that were decided.
    pub nodes: usize,
}

/// Decides what a differentiated model with a mesh leaves open, and writes it; `None` where there is nothing to decide.
///
/// # Errors
/// No choice fits into the memory, or a fault.
pub fn decide(model: &mut Model, goal: &Goal, cluster: &Cluster) -> Result<Option<Decided>, PlanError> {
    let Sharding::Auto { memory, microbatches } = goal.sharding else { return Ok(None) };
    if model.is_settled() || model.mesh.tensor_axes().is_empty() || has_changes(model) {
        return Ok(None);
    }
    let fault = |why| PlanError::Fault { pass: "shard", why };
    let (mesh, dims) = (model.mesh.clone(), model.dims.clone());
    let (ports, classes) = (Ports::new(model), Classes::of(model));
    let weights = Weights::of(model, microbatches);
    let prices = Prices::new(Site { mesh: &mesh, dims: &dims, cluster });
    let mut builder = Builder::new(model, &ports, &classes, weights, prices);
    let axes = |name| mesh.lookup(name).unwrap_or_default();
    let zero = if goal.layout.zero >= 1 { axes("dp").union(&axes("cp")) } else { Axes::none() };
    builder.params(&zero);
    for id in model.blocks.keys() {
        builder.block(id).map_err(fault)?;
    }
    let Builder { mut problem, meaning, .. } = builder;
    problem.limit = memory.unwrap_or(cluster.device.memory);
    let (solution, peak) = solve(&problem);
    if solution.choice.is_empty() {
        return Err(PlanError::NoRoom { bytes: problem.limit });
    }
    let chosen = Chosen { meaning: &meaning, ports: &ports, classes: &classes, choice: &solution.choice };
    chosen.write(model).map_err(fault)?;
    let Solution { cost: seconds, bound, status, .. } = solution;
    Ok(Some(Decided { seconds, bound, is_proved: status == Status::Optimal, peak, nodes: problem.costs.len() }))
}

/// Whether the file states changes of layout: then it also states the rest of what they serve.
fn has_changes(model: &Model) -> bool {
    let stmts = model.blocks.values().flat_map(|block| DECIDED.map(|kind| &block[kind].stmts));
    stmts.flatten().any(|stmt| matches!(stmt.op, Op::Reshard | Op::Collective(_)))
}

/// The best choices, and the most bytes that they hold at once.
fn solve(problem: &Problem) -> (Solution, u64) {
    let mut assignment = Assignment::new();
    let nodes: Vec<_> = problem.costs.iter().map(|costs| assignment.node(costs.clone())).collect();
    for (&(a, b), table) in &problem.edges {
        assignment.edge(nodes[a], nodes[b], table.clone());
    }
    for load in &problem.loads {
        assignment.load(nodes[load.node], load.when.clone(), load.bytes.clone());
    }
    assignment.limit(problem.limit);
    let solution = assignment.solve(&Budget::default());
    let peak = if solution.choice.is_empty() { 0 } else { assignment.peak(&solution.choice) };
    (solution, peak)
}
