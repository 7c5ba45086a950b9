//! The schedule 1F1B: its timeline and its rows.

use super::{ScheduleError, row_of};
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Action, Kind, Schedule};

/// 1F1B (PipeDream-Flush, arXiv 2006.09503): rank r starts with `warm = min(p-1-r, m)` forwards, then alternates one
/// forward and one backward, then drains the `warm` backwards left. GPipe's bubble, but rank r holds min(p-r, m)
/// activations instead of m.
///
/// Three ranks, four micro-batches, f = i = w = 1:
/// ```text
/// rank 0  F0 F1 F2 ........... B0--- F3 B1--- .. B2--- .. B3---
/// rank 1  .. F0 F1 ..... B0--- F2 B1--- F3 B2--- .. B3--- .....
/// rank 2  ..... F0 B0--- F1 B1--- F2 B2--- F3 B3--- ...........
/// ```
pub(super) fn one_f_one_b(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let Pipeline { ranks, microbatches, .. } = *pipeline;
    let rows = (0..ranks).map(|rank| alternating(rank, ranks - 1 - rank, microbatches)).collect();
    Ok(Schedule { name: "1f1b".into(), rows })
}

/// Returns the row of a stage that runs `warm` forwards first (at most all), then alternates.
pub(super) fn alternating(stage: u32, warm: u32, microbatches: u32) -> Vec<Action> {
    let warm = warm.min(microbatches);
    let warm_up = (0..warm).map(|j| (Kind::F, j));
    let steady = (warm..microbatches).flat_map(|j| [(Kind::F, j), (Kind::B, j - warm)]);
    let cool_down = (microbatches - warm..microbatches).map(|j| (Kind::B, j));
    row_of(stage, warm_up.chain(steady).chain(cool_down))
}

/// Returns the number of forwards before the first backward.
pub(super) fn in_flight(rank: u32, pipeline: &Pipeline) -> u32 {
    (pipeline.ranks - rank).min(pipeline.microbatches)
}
