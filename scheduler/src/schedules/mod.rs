//! The known schedules: one file each, pure functions from costs to rows, and the table of them.
//!
//! Notation of the formulas: p ranks (r = 0..p), v chunks (stages) per rank, m micro-batches; f, i, w = seconds of F, I, W of
//! one stage; c = seconds of a hop. Memory counts forward activations of one stage.

pub mod bound;
mod gpipe;
mod one_f_one_b;
mod one_f_one_b_v;
mod v_auto;
mod v_half;
mod v_min;
mod zb_auto;
mod zb_v;
mod zb_v_greedy;

use crate::costs::StageCosts;
use crate::placement::{Pipeline, Placement};
use ir::schedule::{Action, Item, Kind, Schedule};

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
    /// How many stages a rank may hold.
    pub chunks: Chunks,
    make: fn(&StageCosts, &Pipeline) -> Result<Schedule, String>,
}

/// How many stages a kind allows on a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunks {
    /// Just so many.
    Just(u32),
    /// So many or more.
    From(u32),
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
        chunks: Chunks::Just(1),
        make: gpipe::gpipe,
    },
    ScheduleKind {
        name: "1f1b",
        does: "one forward, one backward as soon as a backward can run",
        bubble: "(p-1)(f+i+w)",
        memory: "min(p-r, m)",
        constraint: "none",
        placement: Placement::Chain,
        chunks: Chunks::Just(1),
        make: one_f_one_b::one_f_one_b,
    },
    ScheduleKind {
        name: "zb-auto",
        does: "I and W apart, each W where it fills a gap or frees memory",
        bubble: "(p-1)(f+i-w) at a limit of p; searched",
        memory: "the limit, else 2p",
        constraint: "limit >= 1 forward",
        placement: Placement::Chain,
        chunks: Chunks::Just(1),
        make: zb_auto::zb_auto,
    },
    ScheduleKind {
        name: "zb-v",
        does: "a V with I and W apart, by a fixed rule",
        bubble: "(p-1)f where f = i = w",
        memory: "min(2p, 2m) chunks",
        constraint: "m >= 2p-1, else more bubble",
        placement: Placement::V,
        chunks: Chunks::Just(2),
        make: zb_v::zb_v,
    },
    ScheduleKind {
        name: "zb-v-greedy",
        does: "a V with I and W apart, for the stages' costs and limits",
        bubble: "searched",
        memory: "the limit, else 2p chunks",
        constraint: "limit >= 2 forwards",
        placement: Placement::V,
        chunks: Chunks::Just(2),
        make: zb_v_greedy::zb_v_greedy,
    },
    ScheduleKind {
        name: "v-half",
        does: "a V with half of the memory of 1f1b",
        bubble: "up to 3p slots where f = i = w",
        memory: "2 floor((p+2)/2) chunks",
        constraint: "none",
        placement: Placement::V,
        chunks: Chunks::Just(2),
        make: v_half::v_half,
    },
    ScheduleKind {
        name: "v-min",
        does: "a V with a third of the memory of 1f1b",
        bubble: "up to 4p slots where f = i = w, else grows with m",
        memory: "2 floor((p+4)/3) chunks",
        constraint: "none",
        placement: Placement::V,
        chunks: Chunks::Just(2),
        make: v_min::v_min,
    },
    ScheduleKind {
        name: "1f1b-v",
        does: "a V with whole backwards and 2/3 of the memory of 1f1b",
        bubble: "about 4p slots where f = i = w",
        memory: "2 floor((2p+3)/3) chunks",
        constraint: "none",
        placement: Placement::V,
        chunks: Chunks::Just(2),
        make: one_f_one_b_v::one_f_one_b_v,
    },
    ScheduleKind {
        name: "v-auto",
        does: "the best V of all building blocks and of zb-v-greedy",
        bubble: "searched",
        memory: "the limit, else 2p chunks",
        constraint: "limit >= 2 forwards",
        placement: Placement::V,
        chunks: Chunks::Just(2),
        make: v_auto::v_auto,
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
    /// The pipeline that this kind runs, with so many chunks or, at `None`, as many as it has by itself.
    ///
    /// # Errors
    /// The kind does not have so many chunks.
    pub fn pipeline(&self, ranks: u32, chunks: Option<u32>, microbatches: u32) -> Result<Pipeline, String> {
        let (least, most) = match self.chunks {
            Chunks::Just(number) => (number, number),
            Chunks::From(least) => (least, u32::MAX),
        };
        let chunks = chunks.unwrap_or(least);
        if !(least..=most).contains(&chunks) {
            let or_more = if most > least { " or more" } else { "" };
            let s = if least == 1 { "" } else { "s" };
            return Err(format!("it has {least}{or_more} chunk{s} per rank, not {chunks}"));
        }
        Ok(Pipeline { chunks, ..Pipeline::new(self.placement, ranks, microbatches) })
    }

    /// The rows for a pipeline of this kind; the error says which constraint fails.
    ///
    /// # Errors
    /// A constraint of the kind fails.
    pub fn make(&self, costs: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, String> {
        if pipeline.placement != self.placement {
            return Err(format!("its stages lie as a {}, not as a {}", self.placement, pipeline.placement));
        }
        let (stages, ranks) = (pipeline.stages(), pipeline.ranks);
        if costs.stages() != stages {
            return Err(format!("a {} on {ranks} ranks has {stages} stages, not {}", self.placement, costs.stages()));
        }
        (self.make)(costs, pipeline)
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

/// A row of single actions of one stage, with what ends a step.
fn row_of(stage: u32, actions: impl IntoIterator<Item = (Kind, u32)>) -> Vec<Action> {
    ended(actions.into_iter().map(|(kind, microbatch)| Action::One(Item::new(kind, stage, microbatch))))
}

/// A row with what ends a step: reduce, norm, update.
pub(crate) fn ended(work: impl IntoIterator<Item = Action>) -> Vec<Action> {
    work.into_iter().chain([Kind::R, Kind::N, Kind::U].map(|kind| Action::One(Item::step(kind)))).collect()
}

#[cfg(test)]
mod tests;
