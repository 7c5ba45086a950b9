//! The schedule Seq1F1B: its timeline and its rows.

use super::ScheduleError;
use crate::actions::with_step_end;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Action, Item, Kind, Schedule};

/// Seq1F1B (arXiv 2406.03488): 1F1B on slices of the sequence. A slice needs the slices before it in a forward, and
/// those behind it in a backward, so that forwards ascend and backwards descend. Rank r starts with
/// `warm = p-r-2+q` slices, then alternates. 1F1B's bubble at 1/q of the length; rank r holds p-r-1+q slices.
/// With one slice it is 1F1B, whose items name no slice.
///
/// Three ranks, two micro-batches of two slices, f = i = w = 1:
/// ```text
/// rank 0  F0:0 F0:1 F1:0 F1:1 ................... B0:1----- .... B0:0----- .... B1:1----- B1:0-----
/// rank 1  .... F0:0 F0:1 F1:0 ......... B0:1----- F1:1 B0:0----- .... B1:1----- B1:0----- .........
/// rank 2  ......... F0:0 F0:1 B0:1----- F1:0 B0:0----- F1:1 B1:1----- B1:0----- ...................
/// ```
pub(super) fn seq1f1b(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let Pipeline { ranks, microbatches, slices, .. } = *pipeline;
    let all = microbatches * slices;
    let rows = (0..ranks)
        .map(|rank| {
            let stage = SlicedStage { stage: rank, slices };
            let warm = (ranks - 1 - rank + slices - 1).min(all);
            let warm_up = (0..warm).map(|k| stage.forward(k));
            let steady = (warm..all).flat_map(|k| [stage.forward(k), stage.backward(k - warm)]);
            let cool_down = (all - warm..all).map(|k| stage.backward(k));
            with_step_end(warm_up.chain(steady).chain(cool_down))
        })
        .collect();
    Ok(Schedule { name: "seq1f1b".into(), rows })
}

/// A stage whose micro-batches are split into slices. Forwards take the slices in order, backwards in reverse.
#[derive(Clone, Copy)]
struct SlicedStage {
    stage: u32,
    slices: u32,
}

impl SlicedStage {
    fn forward(self, k: u32) -> Action {
        self.action(Kind::F, k / self.slices, k % self.slices)
    }

    fn backward(self, k: u32) -> Action {
        self.action(Kind::B, k / self.slices, self.slices - 1 - k % self.slices)
    }

    fn action(self, kind: Kind, microbatch: u32, slice: u32) -> Action {
        Action::One(Item { slice: (self.slices > 1).then_some(slice), ..Item::new(kind, self.stage, microbatch) })
    }
}
