//! The schedule DualPipeV: its timeline and its rows.

use super::dualpipe::{Steps, enough};
use super::ended;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Item, Schedule};

/// DualPipeV (DeepSeek's published code; the "cut-in-half" of DualPipe): DualPipe's steps on a V, half the ranks and one
/// copy of the parameters. Phase 0 is a rank's way down, phase 1 its way up. Every rank holds 2p + 1 activations.
///
/// TIMELINE
pub(super) fn dualpipe_v(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, String> {
    let Pipeline { ranks, microbatches, .. } = *pipeline;
    enough(ranks, 2 * ranks, microbatches)?;
    let rows = (0..ranks)
        .map(|rank| {
            let stages = [rank, 2 * ranks - 1 - rank];
            let steps =
                Steps::new(ranks, rank, microbatches, |kind, phase, k| Item::new(kind, stages[phase as usize], k));
            ended(steps.row())
        })
        .collect();
    Ok(Schedule { name: "dualpipe-v".into(), rows })
}
