//! Dependency graph of a schedule, independent of the costs of its actions.

use super::SimulateError;
use super::build::GraphBuilder;
use ir::schedule::{Action, Schedule};

/// The actions of a schedule in topological order. The graph is built once; each [run](DependencyGraph::run) with other costs
/// is one pass over the graph.
#[derive(Debug)]
pub struct DependencyGraph {
    pub(super) ranks: usize,
    pub(super) stages: usize,
    /// Actions in topological order; those of a rank in the order of its row.
    pub(super) actions: Vec<ActionNode>,
    /// Dependencies of all actions, in the order of the actions.
    pub(super) edges: Vec<Edge>,
    /// One action of each sort: all of a sort have equal costs.
    pub(super) sorts: Vec<Action>,
}

/// An action of the graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActionNode {
    pub(super) rank: u32,
    pub(super) sort: u32,
    /// End of its edges, which begin at the end of the previous action's edges.
    pub(super) edges_end: u32,
}

/// Index that marks no action.
pub(super) const NONE: u32 = u32::MAX;

/// A dependency of an action.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// Index of the action that produces the input.
    pub(super) from: u32,
    /// Index of the hop plus one; 0 on the same rank, and between stages that are not neighbours.
    pub(super) hop: u32,
}

impl DependencyGraph {
    /// Builds the graph of a schedule with `stages` stages. Takes time linear in the number of actions, if few ranks wait for
    /// the same one.
    ///
    /// # Errors
    ///
    /// Returns an error if the schedule cannot be simulated.
    pub fn of(schedule: &Schedule, stages: usize) -> Result<DependencyGraph, SimulateError> {
        GraphBuilder::new(schedule, stages)?.build()
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns the number of actions.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Returns whether the graph has no actions.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Yields the rank and the action of each node, of an arbitrary micro-batch. Those of a rank are in the order of its row.
    pub fn actions(&self) -> impl Iterator<Item = (usize, &Action)> {
        (0..self.len()).map(|at| self.action(at))
    }

    pub(super) fn action(&self, at: usize) -> (usize, &Action) {
        let ActionNode { rank, sort, .. } = self.actions[at];
        (rank as usize, &self.sorts[sort as usize])
    }

    pub(super) fn edges(&self, at: usize) -> &[Edge] {
        let start = at.checked_sub(1).map_or(0, |before| self.actions[before].edges_end);
        &self.edges[start as usize..self.actions[at].edges_end as usize]
    }
}
