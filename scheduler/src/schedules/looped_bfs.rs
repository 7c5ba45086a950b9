//! The schedule looped BFS: its timeline and its rows.

use super::ScheduleError;
use crate::actions::with_step_end;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Action, Item, Kind, Schedule};

/// Looped breadth-first (arXiv 2211.05953): v chunks per rank in a loop; all forwards of a chunk before those of the
/// next one, then all backwards, chunks and micro-batches descending. The bubble of interleaved 1F1B, and hops are paid
/// for once each way, but a rank holds all mv activations. A rank needs the parameters of one chunk at a time.
///
/// Two ranks, four micro-batches, two chunks, f = i = w = 1:
/// ```text
/// rank 0  0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3 ........... 2B3---- 2B2---- 2B1---- 2B0---- 0B3---- 0B2---- 0B1---- 0B0----
/// rank 1  ... 1F0 1F1 1F2 1F3 3F0 3F1 3F2 3F3 3B3---- 3B2---- 3B1---- 3B0---- 1B3---- 1B2---- 1B1---- 1B0---- .......
/// ```
pub(super) fn looped_bfs(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let rows = (0..pipeline.ranks).map(|rank| {
        let forwards = breadth_first(pipeline, rank, Kind::F);
        with_step_end(forwards.chain(breadth_first(pipeline, rank, Kind::B).rev()))
    });
    Ok(Schedule { name: "looped-bfs".into(), rows: rows.collect() })
}

/// Returns the actions of a kind on a rank: all micro-batches of a chunk before those of the next chunk.
fn breadth_first(pipeline: &Pipeline, rank: u32, kind: Kind) -> impl DoubleEndedIterator<Item = Action> + use<> {
    let Pipeline { ranks, chunks, microbatches, .. } = *pipeline;
    let stages = (0..chunks).map(move |chunk| chunk * ranks + rank);
    stages.flat_map(move |stage| (0..microbatches).map(move |j| Action::One(Item::new(kind, stage, j))))
}
