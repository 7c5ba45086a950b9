//! The schedule V-Min: its timeline and its rows.

use super::ScheduleError;
use crate::block;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::Schedule;

/// V-Min (arXiv 2405.15362): a V whose ranks hold about a third of the activations of 1F1B's rank 0. Its bubble is about 2p/3m
/// at f = i = w. With other costs, a bubble repeats with every micro-batch.
///
/// In its building block rank r runs four actions: F of chunk 0 in slot `r`, F of chunk 1 in `2p-1-r`, I of chunk 1 in
/// `2p+e+r`, and I of chunk 0 in `4p+e-1-r`. If 3 divides p, e = 2, so that no two slots are equal modulo 6. The block is
/// repeated, each W takes the next free slot, and warm-up and cool-down move up. The order does not depend on the costs.
///
/// Two ranks, three micro-batches; stages 0 and 3 on rank 0:
/// ```text
/// rank 0  0F0 0F1 3F0 3I0 3W0 0I0 0W0 3F1 3I1 3W1 0F2 0I1 0W1 3F2 3I2 3W2 0I2 0W2
/// rank 1  1F0 2F0 2I0 1I0 1F1 2F1 2W0 1W0 2I1 1I1 1F2 2F2 2W1 1W1 2I2 1I2 2W2 1W2
/// ```
pub(super) fn v_min(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let ranks = pipeline.ranks as usize;
    let gap = if ranks.is_multiple_of(3) { 2 } else { 0 };
    let first: Vec<[usize; 4]> = (0..ranks)
        .map(|rank| [rank, 2 * ranks - 1 - rank, 2 * ranks + gap + rank, 4 * ranks + gap - 1 - rank])
        .collect();
    Ok(block::schedule("v-min", &block::reordered(&first, pipeline.microbatches as usize), false))
}
