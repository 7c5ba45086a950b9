//! The known schedules: one file each, pure functions from costs to rows, and the table of them.
//!
//! Notation of the formulas: p ranks (r = 0..p), m micro-batches; f, i, w = seconds of F, I, W of one stage; c = seconds of
//! a hop. Memory counts forward activations of one stage.

pub mod bound;
mod gpipe;
mod one_f_one_b;

use crate::costs::StageCosts;
use ir::schedule::{Action, Item, Kind, Schedule};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A row of the table [`SCHEDULES`].
#[derive(Debug)]
pub struct ScheduleKind {
    /// As `--kind` names it.
    pub name: &'static str,
    /// What it does, in one line.
    pub does: &'static str,
    /// Idle time of a rank in the uniform case, c = 0: makespan less the work of a rank.
    pub bubble: &'static str,
    /// Peak memory of rank r.
    pub memory: &'static str,
    /// What must hold between ranks, chunks and micro-batches.
    pub constraint: &'static str,
    /// Which rank holds which stage.
    pub placement: Placement,
    make: fn(&StageCosts, u32, u32) -> Result<Schedule, String>,
}

/// Every schedule there is.
pub const SCHEDULES: &[ScheduleKind] = &[
    ScheduleKind {
        name: "gpipe",
        does: "all forwards, then all backwards",
        bubble: "(p-1)(f+i+w)",
        memory: "m",
        constraint: "none",
        placement: Placement::Chain,
        make: gpipe::gpipe,
    },
    ScheduleKind {
        name: "1f1b",
        does: "one forward, one backward as soon as a backward can run",
        bubble: "(p-1)(f+i+w)",
        memory: "min(p-r, m)",
        constraint: "none",
        placement: Placement::Chain,
        make: one_f_one_b::one_f_one_b,
    },
];

/// A name that is not in [`SCHEDULES`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no schedule `{0}`; there are {known}", known = SCHEDULES.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", "))]
pub struct UnknownSchedule(pub String);

/// The schedule of a name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<&'static ScheduleKind, UnknownSchedule> {
    SCHEDULES.iter().find(|kind| kind.name == name).ok_or_else(|| UnknownSchedule(name.to_string()))
}

impl ScheduleKind {
    /// The rows for so many ranks and micro-batches; the error says which constraint fails.
    pub fn make(&self, costs: &StageCosts, ranks: u32, microbatches: u32) -> Result<Schedule, String> {
        let stages = self.placement.stages(ranks);
        if costs.stages() != stages {
            return Err(format!("a {} on {ranks} ranks has {stages} stages, not {}", self.placement, costs.stages()));
        }
        (self.make)(costs, ranks, microbatches)
    }
}

/// Which rank holds which stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Stage s on rank s.
    Chain,
}

impl Placement {
    /// How many stages so many ranks hold.
    pub fn stages(self, ranks: u32) -> u32 {
        match self {
            Placement::Chain => ranks,
        }
    }

    /// The rank that holds a stage.
    pub fn rank(self, stage: u32) -> u32 {
        match self {
            Placement::Chain => stage,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Placement::Chain => "chain",
        })
    }
}

/// Every B as I and at once W. The neighbour gets its gradient after I, so with split costs this is never slower.
/// A B in an overlapped pair stays whole.
pub fn split_backward(mut schedule: Schedule) -> Schedule {
    for row in &mut schedule.rows {
        *row = row.iter().flat_map(split_action).collect();
    }
    schedule
}

fn split_action(action: &Action) -> impl Iterator<Item = Action> + use<> {
    let (first, second) = match *action {
        Action::One(item) if item.kind == Kind::B => {
            (Action::One(Item { kind: Kind::I, ..item }), Some(Action::One(Item { kind: Kind::W, ..item })))
        }
        other => (other, None),
    };
    std::iter::once(first).chain(second)
}

/// A row of single actions of one stage, with what ends a step: reduce, norm, update.
fn row_of(stage: u32, actions: impl IntoIterator<Item = (Kind, u32)>) -> Vec<Action> {
    let work = actions.into_iter().map(|(kind, microbatch)| Item::new(kind, stage, microbatch));
    work.chain([Kind::R, Kind::N, Kind::U].map(Item::step)).map(Action::One).collect()
}

#[cfg(test)]
mod tests;
