//! The schedule looped BFS: its timeline and its rows.

use super::ended;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Action, Item, Kind, Schedule};

/// Looped breadth-first (arXiv 2211.05953): v chunks per rank in a loop; all forwards of a chunk before those of the
/// next one, then all backwards, chunks and micro-batches descending. The bubble of interleaved 1F1B, and hops are paid
/// for once each way, but a rank holds all mv activations. A rank needs the parameters of one chunk at a time.
///
/// TIMELINE
pub(super) fn looped_bfs(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, String> {
    let Pipeline { ranks, chunks, microbatches, .. } = *pipeline;
    let all = |kind, rank| {
        let of_chunk =
            move |chunk| (0..microbatches).map(move |j| Action::One(Item::new(kind, chunk * ranks + rank, j)));
        (0..chunks).flat_map(of_chunk)
    };
    let rows = (0..ranks).map(|rank| ended(all(Kind::F, rank).chain(all(Kind::B, rank).rev()))).collect();
    Ok(Schedule { name: "looped-bfs".into(), rows })
}
