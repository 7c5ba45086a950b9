//! The schedule eager 1F1B: its timeline and its rows.

use super::ScheduleError;
use super::one_f_one_b::alternating;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::Schedule;

/// Eager 1F1B (arXiv 2211.05322): 1F1B with twice the forwards ahead, `warm = min(2(p-1-r), m)` on rank r, so that a
/// message and an action run side by side. Hops up to c = f cost time once per direction, as in GPipe; rank r holds
/// min(2(p-r)-1, m) activations.
///
/// Three ranks, four micro-batches, f = i = w = 1:
/// ```text
/// rank 0  F0 F1 F2 F3 ........ B0--- .. B1--- .. B2--- .. B3---
/// rank 1  .. F0 F1 F2 .. B0--- F3 B1--- .. B2--- .. B3--- .....
/// rank 2  ..... F0 B0--- F1 B1--- F2 B2--- F3 B3--- ...........
/// ```
pub(super) fn eager_1f1b(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let Pipeline { ranks, microbatches, .. } = *pipeline;
    let rows = (0..ranks).map(|rank| alternating(rank, 2 * (ranks - 1 - rank), microbatches)).collect();
    Ok(Schedule { name: "eager-1f1b".into(), rows })
}

/// Returns the number of forwards before the first backward.
pub(super) fn in_flight(rank: u32, pipeline: &Pipeline) -> u32 {
    (2 * (pipeline.ranks - rank) - 1).min(pipeline.microbatches)
}
