//! The schedule V-Half: its timeline and its rows.

use super::ScheduleError;
use crate::block;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::Schedule;

/// V-Half (arXiv 2405.15362): a V whose ranks hold about half of the activations of 1F1B's rank 0. Its bubble is about p/2m.
///
/// In its building block rank r runs four actions: F of chunk 0 in slot `2r`, F of chunk 1 in `3p-2-r`, I of chunk 1 in
/// `3p-1+2r+e`, and I of chunk 0 in `6p-2-r+e`. For even p, e = 3, so that no two slots are equal modulo 6. The block is
/// repeated, each W takes the next free slot, and warm-up and cool-down move up. The order does not depend on the costs.
///
/// Two ranks, three micro-batches; stages 0 and 3 on rank 0:
/// ```text
/// rank 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 0I0 3I1 3W1 3F2 3I2 0I1 3W2 0I2 0W0 0W1 0W2
/// rank 1  1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 1F2 2F2 2I1 1I1 2I2 1I2 2W1 2W2 1W1 1W2
/// ```
pub(super) fn v_half(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let ranks = pipeline.ranks as usize;
    let gap = if ranks.is_multiple_of(2) { 3 } else { 0 };
    let first: Vec<[usize; 4]> = (0..ranks)
        .map(|rank| [2 * rank, 3 * ranks - 2 - rank, 3 * ranks - 1 + 2 * rank + gap, 6 * ranks - 2 - rank + gap])
        .collect();
    Ok(block::schedule("v-half", &block::reordered(&first, pipeline.microbatches as usize), false))
}
