//! The schedule ZB-V: its timeline and its rows.

use super::ScheduleError;
use crate::block::{self, BlockRow, Pass};
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use Pass::*;
use ir::schedule::Schedule;

/// ZB-V (arXiv 2401.10241, section 6), by the rule of PyTorch's `ScheduleZBVZeroBubble`: no bubble in any rank's own span
/// where f = i = w and m >= 2p-1, with the 2p chunk activations of 1F1B's rank 0 on every rank.
///
/// The rows are those of n = max(m, 2p-1) micro-batches without the micro-batches from m on. F0 is the F of a rank's first
/// stage r, F1 that of its second stage 2p-1-r. Rank r runs, in this order:
/// 1. `(2(p-r)-1) F0; r (F1 F0); (p-r) (F1 I1 W1)`;
/// 2. while a forward is left, `[F0] I0 W0 F1 I1 W1`;
/// 3. `r (I0 I1); (p-r) (I0 W0)`;
/// 4. the remaining W, those of its second stage first.
///
/// Two ranks, three micro-batches; stages 0 and 3 on rank 0:
/// ```text
/// rank 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2
/// rank 1  1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2
/// ```
pub(super) fn zb_v(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let rows: Vec<BlockRow> = (0..pipeline.ranks).map(|rank| row(rank, pipeline)).collect();
    Ok(block::schedule("zb-v", &rows, false))
}

fn row(rank: u32, pipeline: &Pipeline) -> BlockRow {
    let (below, microbatches) = (pipeline.ranks - rank, pipeline.microbatches);
    let all = microbatches.max(2 * pipeline.ranks - 1);
    let steady = all - rank - below;
    let forwards = all - (2 * below - 1) - rank;
    let parts: [(u32, &[Pass]); 9] = [
        (2 * below - 1, &[F0]),
        (rank, &[F1, F0]),
        (below, &[F1, I1, W1]),
        (forwards, &[F0, I0, W0, F1, I1, W1]),
        (steady - forwards, &[I0, W0, F1, I1, W1]),
        (rank, &[I0, I1]),
        (below, &[I0, W0]),
        (rank, &[W1]),
        (rank, &[W0]),
    ];
    let mut passes = Vec::new();
    for (times, part) in parts {
        (0..times).for_each(|_| passes.extend_from_slice(part));
    }
    let mut count = [0; block::PERIOD];
    let kept = passes.into_iter().filter(|&pass| {
        count[pass as usize] += 1;
        count[pass as usize] <= microbatches
    });
    kept.map(Some).collect()
}

/// Returns the number of forwards of both stages before the first backward, if there are enough micro-batches.
pub(super) fn in_flight(_: u32, pipeline: &Pipeline) -> u32 {
    let ranks = pipeline.ranks;
    if pipeline.microbatches >= 2 * ranks { 2 * ranks - 1 } else { 1 }
}
