//! Dependency graph of a schedule, independent of the costs of its actions.

use super::SimulateError;
use super::build::GraphBuilder;
use ir::schedule::{Action, Schedule};

/// The actions of a schedule one after the other, each after all that it waits for. It is made once; to
/// [run](DependencyGraph::run) it under other costs is one pass over it.
#[derive(Debug)]
pub struct DependencyGraph {
    pub(super) ranks: usize,
    pub(super) stages: usize,
    /// In an order in which they can run; those of a rank in the order of its row.
    pub(super) actions: Vec<ActionNode>,
    /// What actions wait for, in their order.
    pub(super) edges: Vec<Edge>,
    /// One action of each sort: all of a sort cost the same.
    pub(super) sorts: Vec<Action>,
}

/// An action among others.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActionNode {
    pub(super) rank: u32,
    pub(super) sort: u32,
    /// Where its edges end; they begin where those of the action before it end.
    pub(super) edges_end: u32,
}

/// No action.
pub(super) const NONE: u32 = u32::MAX;

/// What an action waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// The action that makes it.
    pub(super) from: u32,
    /// The hop by which it comes, plus one; 0 from the same rank, and where stages are no neighbours.
    pub(super) hop: u32,
}

impl DependencyGraph {
    /// That of a schedule of so many stages. Time linear in the number of actions, as long as few ranks wait on the same one.
    ///
    /// # Errors
    /// The schedule cannot be simulated.
    pub fn of(schedule: &Schedule, stages: usize) -> Result<DependencyGraph, SimulateError> {
        GraphBuilder::new(schedule, stages)?.build()
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// How many actions there are.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The rank of each action, and what it does, for whichever micro-batch; those of a rank in the order of its row.
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
