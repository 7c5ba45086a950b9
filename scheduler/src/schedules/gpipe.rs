//! The schedule GPipe: its timeline and its rows.

use super::{ScheduleError, row_of};
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Kind, Schedule};

/// GPipe (arXiv 1811.06965): all forwards, then all backwards, both ascending.
///
/// Three ranks, four micro-batches, f = i = w = 1:
/// ```text
/// rank 0  F0 F1 F2 F3 ................. B0--- B1--- B2--- B3---
/// rank 1  .. F0 F1 F2 F3 ........ B0--- B1--- B2--- B3--- .....
/// rank 2  ..... F0 F1 F2 F3 B0--- B1--- B2--- B3--- ...........
/// ```
pub(super) fn gpipe(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let Pipeline { ranks, microbatches, .. } = *pipeline;
    let actions: Vec<(Kind, u32)> = [Kind::F, Kind::B]
        .into_iter()
        .flat_map(|kind| (0..microbatches).map(move |microbatch| (kind, microbatch)))
        .collect();
    let rows = (0..ranks).map(|rank| row_of(rank, actions.iter().copied())).collect();
    Ok(Schedule { name: "gpipe".into(), rows })
}
