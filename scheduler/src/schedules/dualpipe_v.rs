//! The schedule DualPipeV: its timeline and its rows.

use super::ScheduleError;
use super::dualpipe::{Steps, enough};
use crate::actions::with_step_end;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Item, Schedule};

/// DualPipeV (DeepSeek's published code; the "cut-in-half" of DualPipe): DualPipe's steps on a V, half the ranks and
/// one copy of the parameters. Phase 0 is a rank's way down, phase 1 its way up. Every rank holds 2p + 1 activations.
///
/// Two ranks, four micro-batches, f = i = w = 1:
/// ```text
/// time 0 to 10
/// rank 0  0F0------ 0F1------ 0F2------ 3F0------ 3I0------ 3W0------ 3F1------ (0F3|3B1)--------------------
/// rank 1  ......... 1F0------ 2F0------ 1F1------ 2F1------ 1F2------ 2B0---------------- (2F2|1B0)-----------
/// time 10 to 20
/// rank 0  ......... (3F2|0B0)-------------------- 3B2---------------- ......... (3F3|0B1)--------------------
/// rank 1  --------- (1F3|2B1)-------------------- (2F3|1B1)-------------------- 2B2---------------- 1B2-------
/// time 20 to 26
/// rank 0  3B3---------------- 0I2------ 0W2------ 0I3------ 0W3------
/// rank 1  --------- ......... 2I3------ 1I3------ 2W3------ 1W3------
/// ```
pub(super) fn dualpipe_v(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let Pipeline { ranks, microbatches, .. } = *pipeline;
    let rows = (0..ranks)
        .map(|rank| {
            let stages = [rank, 2 * ranks - 1 - rank];
            let steps =
                Steps::new(ranks, rank, microbatches, |kind, phase, k| Item::new(kind, stages[phase as usize], k));
            with_step_end(steps.row())
        })
        .collect();
    Ok(Schedule { name: "dualpipe-v".into(), rows })
}

/// Checks that rows reach their steady state.
pub(super) fn accepts(pipeline: &Pipeline) -> Result<(), ScheduleError> {
    enough(pipeline.ranks, 2 * pipeline.ranks, pipeline.microbatches)
}
