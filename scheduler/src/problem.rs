//! Input of a schedule search: the pipeline and its costs, the objective, and the time limit.

use crate::costs::StageCosts;
use crate::placement::Pipeline;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Execution of backwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backward {
    /// The default of the schedule kind.
    #[default]
    Auto,
    /// One action B.
    Fused,
    /// Two actions, I and W.
    Split,
}

/// Quantity to minimise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Time from 0 to the end of the last action.
    #[default]
    Makespan,
    /// Longest time of a rank from its first to its last action.
    Span,
}

/// Deadline and log of a search.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// Time at which the search stops; `None`: after the full search.
    pub deadline: Option<Instant>,
    /// Receives diagnostic lines.
    pub log: &'a (dyn Fn(&str) + Sync),
    /// Set by a search that ends before it has tried all candidates.
    pub stopped: Option<&'a AtomicBool>,
}

impl Patience<'static> {
    /// No deadline, and no log.
    pub const ENDLESS: Patience<'static> = Patience { deadline: None, log: &|_| {}, stopped: None };
}

impl Patience<'_> {
    /// Returns whether the deadline has passed.
    pub fn is_over(&self) -> bool {
        is_over(self.deadline)
    }

    /// Returns a value if the deadline has not passed.
    pub(crate) fn unless_over<T>(&self, value: T) -> Option<T> {
        (!self.is_over()).then_some(value)
    }

    /// Notes that the search has left candidates out.
    pub fn stop(&self) {
        self.stopped.iter().for_each(|stopped| stopped.store(true, Ordering::Relaxed));
    }
}

/// Returns whether a deadline has passed.
pub(crate) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Problem of a schedule search.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// Costs of each stage and memory limits of each rank.
    pub costs: &'a StageCosts,
    /// The pipeline to schedule.
    pub pipeline: &'a Pipeline,
    /// Quantity to minimise.
    pub objective: Objective,
    /// True if I and W may be separate actions.
    pub backward: Backward,
    /// Time at which the search stops; `None`: after a fixed amount of work, so that the answer does not depend on the machine.
    pub deadline: Option<Instant>,
}
