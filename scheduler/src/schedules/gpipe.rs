//! The schedule GPipe: its timeline and its rows.

use super::row_of;
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
pub(super) fn gpipe(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, String> {
    let Pipeline { ranks, microbatches, .. } = *pipeline;
    let all = |kind| (0..microbatches).map(move |microbatch| (kind, microbatch));
    let rows = (0..ranks).map(|rank| row_of(rank, all(Kind::F).chain(all(Kind::B)))).collect();
    Ok(Schedule { name: "gpipe".into(), rows })
}
