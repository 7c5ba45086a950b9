//! The known schedules: one file each, pure functions from costs to rows, and the table of them.
//!
//! Notation of the formulas: p ranks (r = 0..p), v chunks (stages) per rank, m micro-batches, g of them in a group, q
//! slices; f, i, w = seconds of F, I, W of one stage and slice, fb of an overlapped pair; c = seconds of a hop. Memory
//! counts forward activations of one stage and slice.

pub mod bound;
mod chimera;
mod dualpipe;
mod dualpipe_v;
mod eager_1f1b;
mod gpipe;
mod grouped_interleaved;
mod hanayo;
mod interleaved_1f1b;
mod interleaved_zb;
mod looped_bfs;
mod one_f_one_b;
mod one_f_one_b_v;
mod optimal;
mod seq1f1b;
mod suits;
mod table;
mod v_auto;
mod v_half;
mod v_min;
mod zb_auto;
mod zb_h1;
mod zb_h2;
mod zb_v;
mod zb_v_greedy;

use crate::costs::StageCosts;
use crate::placement::{Pipeline, Placement};
use crate::problem::Patience;
use ir::schedule::{Action, Item, Kind, Schedule};
pub use table::SCHEDULES;

/// A row of the table [`SCHEDULES`].
#[derive(Debug)]
pub struct ScheduleKind {
    /// As `--kind` names it.
    pub name: &'static str,
    /// What it does, in one line.
    pub does: &'static str,
    /// Idle time of a rank in the uniform case, c = 0 and m no less than it takes: makespan less the work of a rank.
    pub bubble: &'static str,
    /// Peak memory of rank r.
    pub memory: &'static str,
    /// What must hold between ranks, chunks and micro-batches.
    pub constraint: &'static str,
    /// Which rank holds which stage.
    pub placement: Placement,
    /// How many stages a rank may hold.
    pub chunks: Chunks,
    /// What else may be chosen.
    pub choice: Choice,
    make: Make,
}

/// What makes the rows of a kind.
#[derive(Clone, Copy, Debug)]
enum Make {
    /// A rule: quick for any pipeline.
    Rule(fn(&StageCosts, &Pipeline) -> Result<Schedule, String>),
    /// A search, which ends with the best so far.
    Search(fn(&StageCosts, &Pipeline, &Patience<'_>) -> Result<Schedule, String>),
}

/// How many stages a kind allows on a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunks {
    /// Just so many.
    Just(u32),
    /// So many or more.
    From(u32),
}

/// What may be chosen of a kind beside its chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Nothing.
    Neither,
    /// How many micro-batches go through a chunk before a rank turns to its next one.
    Group,
    /// Into how many slices the sequence of a micro-batch is cut.
    Slices,
}

/// A name that is not in [`SCHEDULES`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no schedule `{0}`")]
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
        let slices = if self.choice == Choice::Slices { DEFAULT_SLICES } else { 1 };
        Ok(Pipeline { chunks, slices, ..Pipeline::new(self.placement, ranks, microbatches) })
    }

    /// A pipeline of this kind with the group and the slices chosen, if they are.
    ///
    /// # Errors
    /// There is no such choice.
    pub fn choose(&self, pipeline: Pipeline, group: Option<u32>, slices: Option<u32>) -> Result<Pipeline, String> {
        match (self.choice, group, slices) {
            (Choice::Neither | Choice::Slices, Some(_), _) => {
                Err(format!("it has no groups: {}", kinds(Choice::Group)))
            }
            (Choice::Neither | Choice::Group, _, Some(_)) => {
                Err(format!("it has no slices: {}", kinds(Choice::Slices)))
            }
            _ => {
                Ok(Pipeline { group: group.or(pipeline.group), slices: slices.unwrap_or(pipeline.slices), ..pipeline })
            }
        }
    }

    /// Whether its stages may lie so: the search takes any placement, its own is what it takes by itself.
    pub fn lies(&self, placement: Placement) -> bool {
        placement == self.placement || self.name == crate::optimal::KIND
    }

    /// The rows for a pipeline of this kind; the error says which constraint fails.
    ///
    /// # Errors
    /// A constraint of the kind fails.
    pub fn make(&self, costs: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, String> {
        self.make_within(costs, pipeline, &Patience::ENDLESS)
    }

    /// The same, by a search that has so much patience.
    ///
    /// # Errors
    /// A constraint of the kind fails.
    pub fn make_within(
        &self,
        costs: &StageCosts,
        pipeline: &Pipeline,
        patience: &Patience<'_>,
    ) -> Result<Schedule, String> {
        if !self.lies(pipeline.placement) {
            return Err(format!("its stages lie as a {}, not as a {}", self.placement, pipeline.placement));
        }
        let (stages, ranks) = (pipeline.stages(), pipeline.ranks);
        if costs.stages() != stages {
            return Err(format!("a {} on {ranks} ranks has {stages} stages, not {}", self.placement, costs.stages()));
        }
        match self.make {
            Make::Rule(make) => make(costs, pipeline),
            Make::Search(make) => make(costs, pipeline, patience),
        }
    }
}

/// The fewest that differ from 1F1B.
const DEFAULT_SLICES: u32 = 2;

/// Which kinds leave a choice.
fn kinds(choice: Choice) -> String {
    let names: Vec<&str> = SCHEDULES.iter().filter(|kind| kind.choice == choice).map(|kind| kind.name).collect();
    let verb = if names.len() == 1 { "has" } else { "have" };
    format!("{} {verb} them", names.join(", "))
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
pub fn ended(work: impl IntoIterator<Item = Action>) -> Vec<Action> {
    work.into_iter().chain([Kind::R, Kind::N, Kind::U].map(|kind| Action::One(Item::step(kind)))).collect()
}

#[cfg(test)]
mod tests;
