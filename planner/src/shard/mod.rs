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
mod turns;
mod weights;

use crate::PlanError;
use crate::ports::Ports;
use crate::reshard::Site;
use apply::Chosen;
use cost::Cluster;
use graph::{Builder, DECIDED, Meaning};
use ir::goal::{Goal, Sharding};
use ir::graph::Model;
use ir::mesh::Axes;
use ir::ops::Op;
use params::Classes;
use prices::Prices;
use problem::Problem;
use solver::Status;
use solver::assign::{Assignment, Budget, Solution};
use std::rc::Rc;
use turns::{Fixed, turns};
use weights::Weights;

/// What deciding the shardings of a model came to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decided {
    /// Seconds of a step by the costs that were added up.
    pub seconds: f64,
    /// No choice of the same strategies takes less; 0 where axes were decided in turns.
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
    let axes = |name| mesh.lookup(name).unwrap_or_default();
    let zero = if goal.layout.zero >= 1 { axes("dp").union(&axes("cp")) } else { Axes::none() };
    let limit = memory.unwrap_or(cluster.device.memory);
    let task = Task { model, ports: &ports, classes: &classes, microbatches, zero };
    let mut prices = Prices::new(Site { mesh: &mesh, dims: &dims, cluster });
    let turns = turns(&mesh.tensor_axes());
    let mut best: Option<Found> = None;
    for (turn, fixed) in turns.iter().chain(turns.iter().skip(1)).take(2 * turns.len() - 1).enumerate() {
        // Axes that have not been decided yet may still cut what is too much.
        let undecided = if turn + 1 < turns.len() { mesh.size(fixed) } else { 1 };
        let before = best.as_ref().map(|found| (Rc::clone(&found.meaning), found.solution.choice.clone()));
        let fixed = Fixed { axes: fixed.clone(), before };
        let (found, known) = task.solve(prices, fixed, limit.saturating_mul(undecided)).map_err(fault)?;
        prices = known;
        best = Some(found).filter(|found| !found.solution.choice.is_empty()).or(best);
    }
    let Some(Found { solution, meaning, peak, nodes }) = best.filter(|found| found.peak <= limit) else {
        return Err(PlanError::NoRoom { bytes: limit });
    };
    let chosen = Chosen { meaning: &meaning, ports: &ports, classes: &classes, choice: &solution.choice };
    chosen.write(model).map_err(fault)?;
    let at_once = turns.len() == 1;
    let (bound, is_proved) = if at_once { (solution.bound, solution.status == Status::Optimal) } else { (0.0, false) };
    Ok(Some(Decided { seconds: solution.cost, bound, is_proved, peak, nodes }))
}

/// What is decided of a model.
struct Task<'a> {
    model: &'a Model,
    ports: &'a Ports,
    classes: &'a Classes,
    microbatches: u32,
    /// Over which states must be stored.
    zero: Axes,
}

/// An answer, and what its choices mean.
struct Found {
    solution: Solution,
    meaning: Rc<Meaning>,
    peak: u64,
    nodes: usize,
}

impl<'a> Task<'a> {
    /// Decides all axes but the fixed ones; gives the prices back.
    fn solve(&self, prices: Prices<'a>, fixed: Fixed, limit: u64) -> Result<(Found, Prices<'a>), String> {
        let weights = Weights::of(self.model, self.microbatches);
        let mut builder = Builder::new(self.model, self.ports, self.classes, weights, prices, fixed);
        builder.params(&self.zero);
        for id in self.model.blocks.keys() {
            builder.block(id)?;
        }
        let Builder { mut problem, meaning, prices, .. } = builder;
        problem.limit = limit;
        let (solution, peak) = solve(&problem);
        Ok((Found { solution, meaning: Rc::new(meaning), peak, nodes: problem.costs.len() }, prices))
    }
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
