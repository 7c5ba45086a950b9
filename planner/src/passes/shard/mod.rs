//! Cost-based sharding of an entire model. The strategies of all statements, the shardings of values passed between
//! blocks, and the placement of parameters and states form one assignment problem, as in Alpa (Zheng et al. 2022,
//! section 4). The problem covers forward and backward together. A repeated block returns values in the sharding in
//! which it takes them.
//!
//! The objective is the time of ops on local shapes, times the executions of their block, plus the time of the cheapest
//! reshards. Every execution of a block saves the values that the backward reads. Parameters, gradients and states
//! occupy memory throughout the step. Meshes with many axes are decided in turns (`search`), with a lower bound from
//! smaller problems (`bound`).
//!
//! A node is one of four: the strategy of a statement, the sharding of a value or cotangent between blocks, the placement
//! of a parameter and its states, or a shared copy of a value. In a strategy an axis shards a factor of the rule, passes a
//! partial sum on, or does nothing. Edges cost the cheapest reshard (`reshard::table`). If the arena of the compiled
//! program exceeds the limit, the compiler subtracts the excess from the limit of the next round.

mod apply;
mod bound;
mod candidates;
mod copies;
mod graph;
mod params;
mod prices;
mod problem;
mod search;
mod sizes;
mod start;
mod strategy;
#[cfg(test)]
mod tests;
mod turns;
mod weights;

use crate::PlanError;
use crate::fault::Fault;
use crate::passes::annotate;
use crate::ports::Ports;
use crate::reshard::Site;
use apply::Chosen;
use cost::Platform;
use graph::{Builder, DECIDED, Meaning};
use ir::graph::Model;
use ir::mesh::Axes;
use ir::ops::Op;
use ir::options::{PlanOptions, Sharding};
use params::Classes;
use prices::Prices;
use problem::Problem;
use search::{PAIRS, Search};
use solver::assign::{Assignment, Budget, Deadline, Solution};
use start::propagated;
use std::rc::Rc;
use tracing::{debug, debug_span};
use turns::{Before, Turn};
use weights::Weights;

/// The pass: with `--shard auto`, decides by cost every dim that `annotate` leaves open; otherwise a no-op.
pub(crate) fn run(
    model: &mut Model,
    options: &PlanOptions,
    platform: &Platform<'_>,
    watch: &mut Watch<'_>,
) -> Result<(), PlanError> {
    if let Sharding::Auto { .. } = options.sharding
        && !model.is_fully_specified()
        && decide(model, options, platform, watch)?.is_none()
    {
        // No cost-based decision: `propagate` propagates the stated shardings.
        annotate::close(model, options)?;
    }
    Ok(())
}

/// Result of the cost-based sharding of a model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decided {
    /// Time of a step under the cost model, in seconds.
    pub seconds: f64,
    /// Lower bound on the time of any choice, in seconds; 0 if time ran out before a bound was found.
    pub bound: f64,
    /// True if `seconds` is proved to equal `bound`.
    pub is_proved: bool,
    /// Peak memory of a device, in bytes.
    pub peak: u64,
    /// Number of decided nodes: statements, boundaries, parameters and copies.
    pub nodes: usize,
}

impl Decided {
    /// Relative optimality gap: upper limit on the excess of `seconds` over the optimum.
    pub fn gap(&self) -> f64 {
        if self.is_proved { 0.0 } else { (self.seconds - self.bound) / self.seconds.max(f64::MIN_POSITIVE) }
    }
}

/// Callback that receives the best choice so far, without a bound, and finally the answer.
pub type Watch<'a> = dyn FnMut(&Decided) + 'a;

/// Decides and writes the open shardings of a differentiated model with a mesh; `None` if nothing is open.
///
/// # Errors
/// No choice fits the memory budget, or an internal error.
pub fn decide(
    model: &mut Model,
    options: &PlanOptions,
    platform: &Platform<'_>,
    watch: &mut Watch<'_>,
) -> Result<Option<Decided>, PlanError> {
    let Sharding::Auto { memory, microbatches, deadline } = options.sharding else { return Ok(None) };
    if model.is_fully_specified() || model.mesh.tensor_axes().is_empty() || has_changes(model) {
        return Ok(None);
    }
    let end = Deadline::after(deadline);

    let (mesh, dims) = (model.mesh.clone(), model.dims.clone());
    let (ports, classes) = (Ports::new(model), Classes::of(model));
    let zero = if options.parallel.zero >= 1 { annotate::zero_group(&mesh, options) } else { Axes::none() };
    let limit = memory.unwrap_or(platform.cluster.device.memory);
    let task = Task { model, ports: &ports, classes: &classes, microbatches, zero: &zero };
    let rules = propagated(model, options, platform, &ports, &classes);
    let prices = Prices::new(Site::new(&mesh, &dims, platform));
    let _span = debug_span!("sharding_search", axes = mesh.tensor_axes().len(), limit_bytes = limit).entered();
    let search = Search { task: &task, prices, limit, end, watch: &mut *watch, best: None, spent: 0, most: PAIRS };
    let (best, bound) = search.run(rules).map_err(|fault| fault.in_pass("shard"))?;
    let Some(Found { solution, meaning, peak, nodes, .. }) = best.filter(|found| found.peak <= limit) else {
        return Err(PlanError::NoRoom { bytes: limit, is_proved: bound == f64::INFINITY });
    };
    let chosen = Chosen { meaning: &meaning, ports: &ports, classes: &classes, choice: &solution.choice };
    chosen.write(model).map_err(|fault| fault.in_pass("shard"))?;
    let (seconds, bound) = (solution.cost, bound.clamp(0.0, solution.cost));
    let decided = Decided { seconds, bound, is_proved: seconds - bound <= PROVED * seconds, peak, nodes };
    debug!(?decided, "shardings");
    watch(&decided);
    Ok(Some(decided))
}

/// Relative rounding tolerance of an optimality proof.
const PROVED: f64 = 1e-8;

/// Problem instance: a model and its step.
#[derive(Clone, Copy)]
struct Task<'a> {
    model: &'a Model,
    ports: &'a Ports,
    classes: &'a Classes,
    microbatches: u32,
    /// Axes over which states must be stored.
    zero: &'a Axes,
}

/// Solution, with the meaning of its choices.
#[derive(Clone)]
struct Found {
    solution: Solution,
    meaning: Rc<Meaning>,
    peak: u64,
    nodes: usize,
    /// Number of pairs of choices in the problem's tables.
    pairs: usize,
}

impl Found {
    /// Use of all axes, as a start for later turns; empty without a solution.
    fn before(&self) -> Before {
        let (meaning, choice) = (&self.meaning, &self.solution.choice);
        if choice.is_empty() {
            return Before::default();
        }
        let stmts = meaning.stmts.iter().map(|(key, (node, all))| (*key, all[choice[*node]].assignment.clone()));
        let values = meaning.values.iter().map(|(key, (node, all))| (*key, all[choice[*node]].clone()));
        let params = meaning.params.iter().map(|(key, (node, all))| (*key, all[choice[*node]].clone()));
        Before { stmts: stmts.collect(), values: values.collect(), params: params.collect() }
    }
}

impl Task<'_> {
    /// Decides the axes of a turn, within a budget.
    fn solve(
        &self,
        prices: &mut Prices<'_>,
        turn: &Turn,
        before: Option<&Before>,
        limit: u64,
        budget: &Budget,
    ) -> Result<Option<Found>, Fault> {
        let weights = Weights::of(self.model, self.microbatches);
        let mut builder = Builder::new(*self, weights, prices, turn, before);
        builder.params(self.zero);
        for id in self.model.blocks.keys() {
            builder.block(id)?;
        }
        let Builder { mut problem, meaning, .. } = builder;
        problem.limit = limit;
        let pairs = problem.edges.values().map(Vec::len).sum();
        let (solution, peak) = solve(&problem, budget);
        Ok(Some(Found { solution, meaning: Rc::new(meaning), peak, nodes: problem.costs.len(), pairs }))
    }
}

/// Returns whether the file contains reshards; such a file also states all shardings around them.
fn has_changes(model: &Model) -> bool {
    let stmts = model.blocks.values().flat_map(|block| DECIDED.map(|kind| &block[kind].stmts));
    stmts.flatten().any(|stmt| matches!(stmt.op, Op::Reshard | Op::Collective(_)))
}

/// Solves a problem; returns the best choices and their peak bytes.
fn solve(problem: &Problem, budget: &Budget) -> (Solution, u64) {
    let mut assignment = Assignment::new();
    let nodes: Vec<_> = problem.costs.iter().map(|costs| assignment.node(costs.clone())).collect();
    for (&(a, b), table) in &problem.edges {
        assignment.edge(nodes[a], nodes[b], table.clone());
    }
    for load in &problem.loads {
        assignment.load(nodes[load.node], load.when.clone(), load.bytes.clone());
    }
    assignment.limit(problem.limit);
    let solution = assignment.solve(budget);
    let peak = if solution.choice.is_empty() { 0 } else { assignment.peak(&solution.choice) };
    (solution, peak)
}
