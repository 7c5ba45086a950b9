//! The known schedules: one file each, pure functions from costs to rows, and the table of them.
//!
//! Notation of the formulas: p ranks (r = 0..p), v chunks (stages) per rank, m micro-batches, g micro-batches of a group, q
//! slices. Seconds of one stage and slice: f, i, w for F, I, W, and fb for an overlapped pair; c is the seconds of a hop.
//! Memory counts forward activations of one stage and slice.

mod chimera;
mod dualpipe;
mod dualpipe_v;
mod eager_1f1b;
mod error;
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
pub use error::ScheduleError;
use ir::schedule::{Action, Item, Kind, Schedule};
pub use table::SCHEDULES;

/// A schedule kind: a row of the table [`SCHEDULES`].
#[derive(Debug)]
pub struct ScheduleKind {
    /// Name in `--kind`.
    pub name: &'static str,
    /// Description in one line.
    pub does: &'static str,
    /// Idle seconds of a rank (makespan less work) with uniform costs, c = 0 and m large enough.
    pub bubble: &'static str,
    /// Peak memory of rank r.
    pub memory: &'static str,
    /// Constraint on ranks, chunks and micro-batches.
    pub constraint: &'static str,
    /// Assignment of stages to ranks.
    pub placement: Placement,
    /// Allowed number of stages per rank.
    pub chunks: Chunks,
    /// Further options of the kind.
    pub choice: Choice,
    /// True if the order has I and W of their own, so that an input gradient is sent before the weight gradient is done.
    pub splits_backward: bool,
    /// The inputs that determine the order.
    pub order: OrderBasis,
    /// Constraint on a pipeline with the kind's default groups; the error names numbers that are allowed.
    accepts: fn(&Pipeline) -> Result<(), ScheduleError>,
    /// Lower bound on the forward activations of one stage and slice that a rank holds at once.
    min_in_flight: fn(u32, &Pipeline) -> u32,
    /// The kind that replaces this one with several stages per rank, if there is one.
    pub interleaved_as: Option<&'static str>,
    /// True if most training runs use it: a search of configurations begins with these.
    pub is_common: bool,
    make: Make,
}

/// Inputs that determine the order of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderBasis {
    /// The pipeline alone, not the costs.
    Fixed {
        /// True if every round of p micro-batches is ordered as the round before it.
        repeats: bool,
    },
    /// The costs, by a fixed rule.
    ByCosts,
    /// The costs, by a search through many orders: seconds on 32 ranks.
    Searched,
    /// The costs, by the search of [`crate::optimal`], on any placement; it starts from the orders of the other kinds.
    Solved,
}

/// Function that makes the rows of a kind.
#[derive(Clone, Copy, Debug)]
enum Make {
    /// A rule, which is quick for any pipeline.
    Rule(fn(&StageCosts, &Pipeline) -> Result<Schedule, ScheduleError>),
    /// A search, which returns its best order when the patience ends.
    Search(fn(&StageCosts, &Pipeline, &Patience<'_>) -> Result<Schedule, ScheduleError>),
}

/// Number of stages per rank that a kind allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunks {
    /// Exactly this number.
    Just(u32),
    /// This number or more.
    From(u32),
}

/// Options of a kind besides its chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// No options.
    Neither,
    /// Number of micro-batches that run through a chunk before the rank's next chunk.
    Group,
    /// Number of slices of a micro-batch's sequence.
    Slices,
}

/// A name that is not in [`SCHEDULES`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no schedule `{0}`")]
pub struct UnknownSchedule(pub String);

/// Returns the schedule kind with a name.
///
/// # Errors
///
/// Returns [`UnknownSchedule`] if no kind has the name.
pub fn find(name: &str) -> Result<&'static ScheduleKind, UnknownSchedule> {
    SCHEDULES.iter().find(|kind| kind.name == name).ok_or_else(|| UnknownSchedule(name.to_string()))
}

/// Returns the kind for a name with `chunks` stages per rank: 1F1B with several is interleaved 1F1B (Narayanan et al. 2021).
pub fn with_chunks(name: &str, chunks: Option<u32>) -> &str {
    if chunks.is_none_or(|chunks| chunks < 2) {
        return name;
    }
    find(name).ok().and_then(|kind| kind.interleaved_as).unwrap_or(name)
}

/// Searches for the best order, with the orders of all other kinds as warm starts.
///
/// # Errors
///
/// Returns [`Infeasible`] if no order meets the memory limits.
pub fn solve(problem: &Problem, log: &(dyn Fn(&str) + Sync)) -> Result<Answer, Infeasible> {
    crate::optimal::solve(problem, &mut warm_starts(problem, log), log)
}

/// Yields the orders of all kinds with the problem's placement and backwards, each made on demand.
fn warm_starts<'a>(
    problem: &'a Problem<'a>,
    log: &'a (dyn Fn(&str) + Sync),
) -> impl Iterator<Item = (&'static str, Schedule)> + 'a {
    let patience = Patience { deadline: problem.deadline, log, stopped: None };
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
    /// Builds the pipeline of this kind, with `chunks` stages per rank or the kind's default.
    ///
    /// # Errors
    ///
    /// Returns an error if the kind does not allow that number of chunks.
    pub fn pipeline(&self, ranks: u32, chunks: Option<u32>, microbatches: u32) -> Result<Pipeline, ScheduleError> {
        let (least, most) = match self.chunks {
            Chunks::Just(number) => (number, number),
            Chunks::From(least) => (least, u32::MAX),
        };
        let chunks = chunks.unwrap_or(least);
        if !(least..=most).contains(&chunks) {
            return Err(ScheduleError::Chunks { allowed: self.chunks, chunks });
        }
        Ok(Pipeline { chunks, slices: self.slices(None), ..Pipeline::new(self.placement, ranks, microbatches) })
    }

    /// Number of slices of a sequence: the given one, or the kind's default.
    pub fn slices(&self, given: Option<u32>) -> u32 {
        given.unwrap_or(if self.choice == Choice::Slices { DEFAULT_SLICES } else { 1 })
    }

    /// Sets the group size and the number of slices, where given.
    ///
    /// # Errors
    ///
    /// Returns an error if the kind has no such option.
    pub fn choose(
        &self,
        pipeline: Pipeline,
        group: Option<u32>,
        slices: Option<u32>,
    ) -> Result<Pipeline, ScheduleError> {
        match (self.choice, group, slices) {
            (Choice::Neither | Choice::Slices, Some(_), _) => Err(ScheduleError::NoGroups),
            (Choice::Neither | Choice::Group, _, Some(_)) => Err(ScheduleError::NoSlices),
            _ => {
                Ok(Pipeline { group: group.or(pipeline.group), slices: slices.unwrap_or(pipeline.slices), ..pipeline })
            }
        }
    }

    /// Returns whether the kind supports a placement. The search supports all.
    pub fn supports_placement(&self, placement: Placement) -> bool {
        placement == self.placement || self.order == OrderBasis::Solved
    }

    /// Returns whether the order does not depend on the costs.
    pub fn has_fixed_order(&self) -> bool {
        matches!(self.order, OrderBasis::Fixed { .. })
    }

    /// Returns whether every round of p micro-batches has the order of the round before.
    pub fn repeats_rounds(&self) -> bool {
        self.order == OrderBasis::Fixed { repeats: true }
    }

    /// Returns whether the kind tries many orders, which takes seconds on 32 ranks.
    pub fn searches(&self) -> bool {
        matches!(self.order, OrderBasis::Searched | OrderBasis::Solved)
    }

    /// Returns whether a pipeline with default groups meets the kind's constraint.
    pub fn accepts(&self, pipeline: &Pipeline) -> bool {
        (self.accepts)(pipeline).is_ok()
    }

    /// Returns a lower bound on the forward activations of one stage and slice that a rank saves at a time.
    pub fn min_in_flight(&self, rank: u32, pipeline: &Pipeline) -> u32 {
        (self.min_in_flight)(rank, pipeline)
    }

    /// Returns a lower bound on the micro-batches that each stage of a rank has in flight at once. The further ones of
    /// [`ScheduleKind::min_in_flight`] that are in flight then are not of the rank's last stage.
    ///
    /// In a loop, groups of at least p micro-batches go through all chunks in turn. Before the first backward a whole group has gone
    /// through each chunk but the last.
    pub fn min_microbatches_of_each(&self, rank: u32, pipeline: &Pipeline) -> u32 {
        let Pipeline { ranks, chunks, microbatches, placement, .. } = *pipeline;
        let all = self.min_in_flight(rank, pipeline);
        let group = ranks.min(microbatches);
        match placement {
            _ if chunks == 1 => all,
            Placement::Loop if all == microbatches.saturating_mul(chunks) => microbatches,
            Placement::Loop => all.saturating_sub((chunks - 1).saturating_mul(group)).min(group),
            _ => 0,
        }
    }

    /// Makes the rows for a pipeline of this kind.
    ///
    /// # Errors
    ///
    /// Returns the constraint of the kind that the pipeline violates.
    pub fn make(&self, costs: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
        self.make_within(costs, pipeline, &Patience::ENDLESS)
    }

    /// Makes the rows, with limited patience for a search.
    ///
    /// # Errors
    ///
    /// Returns the constraint of the kind that the pipeline violates.
    pub fn make_within(
        &self,
        costs: &StageCosts,
        pipeline: &Pipeline,
        patience: &Patience<'_>,
    ) -> Result<Schedule, ScheduleError> {
        if !self.supports_placement(pipeline.placement) {
            return Err(ScheduleError::Placement { own: self.placement, given: pipeline.placement });
        }
        if costs.stages() != pipeline.stages() {
            let (placement, ranks) = (self.placement, pipeline.ranks);
            return Err(ScheduleError::Stages { placement, ranks, stages: pipeline.stages(), given: costs.stages() });
        }
        (self.accepts)(pipeline)?;
        match self.make {
            Make::Rule(make) => make(costs, pipeline),
            Make::Search(make) => make(costs, pipeline, patience),
        }
    }
}

/// Smallest number of slices that differs from 1F1B.
const DEFAULT_SLICES: u32 = 2;

/// Builds a row of single actions of one stage, with R, N and U at the end.
fn row_of(stage: u32, actions: impl IntoIterator<Item = (Kind, u32)>) -> Vec<Action> {
    with_step_end(actions.into_iter().map(|(kind, microbatch)| Action::One(Item::new(kind, stage, microbatch))))
}

#[cfg(test)]
mod tests;
