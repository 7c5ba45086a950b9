//! The simulator of all schedules: the time of each action, and the input that it waited for.
//!
//! A rank runs its row in order. An action starts when the rank is free and all its inputs have arrived:
//! - F of stage s needs F of s-1;
//! - I or B of s needs its own F, and I or B of s+1;
//! - W needs its own I;
//! - slice k needs, on the same stage, F of slice k-1 for F and I or B of slice k+1 for I and B.
//!
//! A result arrives on another rank [`StageCosts::comm`] seconds of its hop after its end. Sends do not block the sender
//! ([`can_run`] checks whether an order can run with blocking sends). R, N, U, G, D, O and L take no time and no memory here.

mod build;
mod deadlock;
mod graph;
mod positions;
mod run;
mod sends;
mod timeline;

pub use deadlock::{Blocked, Deadlock, StalledRank, WaitsFor};
pub use graph::DependencyGraph;
pub use positions::ActionPosition;
pub use run::Simulation;
pub use sends::{Sends, can_run};
pub use timeline::{Idle, Reason, Slot, Timeline, Wait};

use crate::costs::StageCosts;
use ir::schedule::{Item, Schedule};

/// An error of a simulation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimulateError {
    /// Ranks wait for each other, or for an action that is in no row.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
    /// An invalid item, or an item that appears twice.
    #[error("rank {rank}, position {position}: `{item}` {why}")]
    Item {
        /// Rank of the item.
        rank: usize,
        /// Position in the rank's row.
        position: usize,
        /// The item.
        item: Item,
        /// Reason.
        why: &'static str,
    },
    /// The indices span more items than the schedule has.
    #[error("the items name {stages} stages x {microbatches} micro-batches x {slices} slices, but are only {items}")]
    Incomplete {
        /// One more than the highest stage named.
        stages: usize,
        /// One more than the highest micro-batch named.
        microbatches: usize,
        /// One more than the highest slice named.
        slices: usize,
        /// Number of items.
        items: usize,
    },
}

/// Simulates a schedule.
///
/// Takes time linear in the number of actions, if few ranks wait for the same one.
///
/// # Errors
///
/// Returns the errors of [`DependencyGraph::of`].
pub fn simulate(schedule: &Schedule, costs: &StageCosts) -> Result<Timeline, SimulateError> {
    Ok(Timeline::of(schedule, &DependencyGraph::of(schedule, costs.f.len())?.run(costs)))
}

#[cfg(test)]
mod tests;
