//! Input of a schedule search: the pipeline and its costs, the objective, and the time limit.

use crate::costs::StageCosts;
use crate::placement::Pipeline;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// How backwards are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backward {
    /// As the kind has it.
    #[default]
    Auto,
    /// As one: B.
    Fused,
    /// I, then W.
    Split,
}

/// What is to be small.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// The end of the last action.
    #[default]
    Makespan,
    /// The longest of the ranks' own spans.
    Span,
}

/// How long a search may take, and who is told how it goes.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// When to stop; `None`: when all is tried.
    pub deadline: Option<Instant>,
    /// Is told lines for people who look inside.
    pub log: &'a (dyn Fn(&str) + Sync),
}

impl Patience<'static> {
    /// No deadline, and nobody to tell.
    pub const ENDLESS: Patience<'static> = Patience { deadline: None, log: &|_| {} };
}

impl Patience<'_> {
    /// Whether the deadline is over.
    pub fn is_over(&self) -> bool {
        is_over(self.deadline)
    }
}

/// Whether a deadline is over.
pub(crate) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// A schedule to be found.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// What each stage takes, and what each rank may hold.
    pub costs: &'a StageCosts,
    /// What lies where.
    pub pipeline: &'a Pipeline,
    /// What is to be small.
    pub objective: Objective,
    /// Whether I and W may be parted.
    pub backward: Backward,
    /// When to stop; `None`: after a fixed amount of work, so that the answer does not depend on the machine.
    pub deadline: Option<Instant>,
}
