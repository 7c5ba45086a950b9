//! The schedule ZB-H1: its timeline, and its rows, which ZB-H2 shares.

use super::{ScheduleError, row_of};
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Action, Kind, Schedule};

/// ZB-H1 (arXiv 2401.10241, section 2.1): 1F1B with the backward split; rank r puts its W off until it has run r of its
/// I, and runs the last r in what was its bubble. One third of 1F1B's bubble at f = i = w; every rank holds min(p, m)
/// activations.
///
/// Three ranks, four micro-batches, f = i = w = 1:
/// ```text
/// rank 0  F0 F1 F2 ..... I0 W0 F3 I1 W1 I2 W2 I3 W3
/// rank 1  .. F0 F1 .. I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
/// rank 2  ..... F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
/// ```
pub(super) fn zb_h1(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let Pipeline { ranks, microbatches, .. } = *pipeline;
    let rows = (0..ranks).map(|rank| put_off(rank, ranks - 1 - rank, rank, microbatches)).collect();
    Ok(Schedule { name: "zb-h1".into(), rows })
}

/// Returns the row of a stage that runs `warm` forwards ahead, and its W `late` micro-batches after their I.
pub(super) fn put_off(stage: u32, warm: u32, late: u32, microbatches: u32) -> Vec<Action> {
    let (warm, late) = (warm.min(microbatches), late.min(microbatches));
    let warm_up = (0..warm).map(|j| (Kind::F, j));
    let steady = (0..microbatches).flat_map(|j| {
        let f = (warm + j < microbatches).then_some((Kind::F, warm + j));
        let w = j.checked_sub(late).map(|j| (Kind::W, j));
        f.into_iter().chain([(Kind::I, j)]).chain(w)
    });
    let last = (microbatches - late..microbatches).map(|j| (Kind::W, j));
    row_of(stage, warm_up.chain(steady).chain(last))
}
