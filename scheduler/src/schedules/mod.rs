//! The known schedules: one file each, pure functions from costs to rows, and the table of them.
//!
//! Notation of the formulas: p ranks (r = 0..p), v chunks (stages) per rank, m micro-batches, g of them in a group, q
//! slices; f, i, w = seconds of F, I, W of one stage and slice, fb of an overlapped pair; c = seconds of a hop. Memory
//! counts forward activations of one stage and slice.

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
mod table;
mod v_auto;
mod v_half;
mod v_min;
mod zb_auto;
mod zb_h1;
mod zb_h2;
mod zb_v;
mod zb_v_greedy;

use crate::actions::{split_backward, with_step_end};
use crate::costs::StageCosts;
use crate::optimal::{Answer, Infeasible};
use crate::placement::{Pipeline, Placement};
use crate::problem::{Backward, Patience, Problem};
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
    /// True if the order has I and W of their own, so that an input gradient is sent before the weight gradient is done.
    pub splits_backward: bool,
    /// What the order depends on.
    pub order: OrderBasis,
    /// Constraint on a pipeline that has the kind's own groups; the error says what would do.
    accepts: fn(&Pipeline) -> Result<(), String>,
    /// Lower bound on the forward activations of one stage and slice that a rank holds at once.
    min_in_flight: fn(u32, &Pipeline) -> u32,
    /// The kind that the name means with several stages per rank, if that is another one.
    pub interleaved_as: Option<&'static str>,
    /// True if most training runs use it: a search of configurations begins with these.
    pub is_common: bool,
    make: Make,
}

/// What the order of a kind depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderBasis {
    /// The pipeline alone, not the costs.
    Fixed {
        /// True if every round of p micro-batches is ordered as the round before it.
        repeats: bool,
    },
    /// The costs, by a rule.
    ByCosts,
    /// The costs, by a search through many orders: seconds on 32 ranks.
    Searched,
    /// The costs, by the search of [`crate::optimal`], on any placement; it starts from the orders of the other kinds.
    Solved,
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

/// The kind that a name means with `chunks` stages per rank: 1F1B with several is the interleaved one (Narayanan et al. 2021).
pub fn with_chunks(name: &str, chunks: Option<u32>) -> &str {
    let interleaved = || find(name).ok().and_then(|kind| kind.interleaved_as);
    if chunks.is_some_and(|chunks| chunks > 1) { interleaved().unwrap_or(name) } else { name }
}

/// Searches for the best order, with the orders of all other kinds as warm starts.
///
/// # Errors
/// No order holds the memory limits.
pub fn solve(problem: &Problem, log: &(dyn Fn(&str) + Sync)) -> Result<Answer, Infeasible> {
    crate::optimal::solve(problem, &mut warm_starts(problem, log), log)
}

/// The orders of all kinds with this placement and the backwards that are asked for, made when they are taken.
fn warm_starts<'a>(
    problem: &'a Problem<'a>,
    log: &'a (dyn Fn(&str) + Sync),
) -> impl Iterator<Item = (&'static str, Schedule)> + 'a {
    let patience = Patience { deadline: problem.deadline, log };
    SCHEDULES.iter().filter(|kind| kind.order != OrderBasis::Solved).filter_map(move |kind| {
        let pipeline = problem.pipeline;
        let fits = kind.pipeline(pipeline.ranks, Some(pipeline.chunks), pipeline.microbatches).ok()?;
        let made = (fits.placement == pipeline.placement)
            .then(|| kind.make_within(problem.costs, pipeline, &patience).ok())??;
        let schedule = if problem.backward == Backward::Fused { made } else { split_backward(made) };
        let allowed = schedule.rows.iter().flatten().flat_map(|action| action.items()).all(|item| {
            problem.backward == Backward::Auto || (item.kind == Kind::B) == (problem.backward == Backward::Fused)
        });
        allowed.then_some((kind.name, schedule))
    })
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
        placement == self.placement || self.order == OrderBasis::Solved
    }

    /// Whether the order is the same whatever actions take.
    pub fn has_fixed_order(&self) -> bool {
        matches!(self.order, OrderBasis::Fixed { .. })
    }

    /// Whether every round of as many micro-batches as there are ranks is ordered as the one before it.
    pub fn repeats_rounds(&self) -> bool {
        self.order == OrderBasis::Fixed { repeats: true }
    }

    /// Whether it tries many orders: on 32 ranks for seconds.
    pub fn searches(&self) -> bool {
        matches!(self.order, OrderBasis::Searched | OrderBasis::Solved)
    }

    /// Whether the kind's constraint holds for a pipeline with its own groups.
    pub fn accepts(&self, pipeline: &Pipeline) -> bool {
        (self.accepts)(pipeline).is_ok()
    }

    /// Lower bound on the forward activations of one stage and slice that a rank holds at once.
    pub fn min_in_flight(&self, rank: u32, pipeline: &Pipeline) -> u32 {
        (self.min_in_flight)(rank, pipeline)
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
        (self.accepts)(pipeline)?;
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

/// A row of single actions of one stage, with what ends a step.
fn row_of(stage: u32, actions: impl IntoIterator<Item = (Kind, u32)>) -> Vec<Action> {
    with_step_end(actions.into_iter().map(|(kind, microbatch)| Action::One(Item::new(kind, stage, microbatch))))
}

#[cfg(test)]
mod tests;
