//! The schedule grouped interleaved: its timeline and its rows.

use super::ended;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Action, Item, Kind, Schedule};

/// Grouped interleaved (GIS of PipeOffload, arXiv 2503.01328): interleaved 1F1B built from a block that repeats. In
/// slots of one action, f = i = w, a block runs g micro-batches through the v chunks of a rank, one per 3 slots: F of
/// chunk a and j-th micro-batch on rank r at 3(ga + j) + r, I of chunk v-1-a at 3(g(v-1) + ga + j) + r + 3(p-1-r) + 1, W
/// at once behind it. Blocks follow each other every 3gv slots; a row is what falls on its rank, in order of slots.
/// A rank's backwards follow its forwards sooner than in interleaved 1F1B, so that rank 0 holds about gv activations.
///
/// TIMELINE
pub(super) fn grouped_interleaved(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, String> {
    let Pipeline { ranks, chunks, microbatches, .. } = *pipeline;
    let least = ranks.div_ceil(2);
    let group = pipeline.group.unwrap_or(ranks);
    if !(least..=ranks).contains(&group) {
        return Err(format!("on {ranks} ranks groups have {least} to {ranks} micro-batches, not {group}"));
    }
    let rows = (0..ranks)
        .map(|rank| {
            let mut slots = Vec::new();
            for (turn, microbatch) in (0..chunks).flat_map(|turn| (0..microbatches).map(move |j| (turn, j))) {
                let (block, place) = (microbatch / group, microbatch % group);
                let slot = 3 * (block * group * chunks + group * turn + place) + rank;
                let back = slot + 3 * group * (chunks - 1) + 3 * (ranks - 1 - rank) + 1;
                let stage = |chunk| chunk * ranks + rank;
                slots.push((slot, Item::new(Kind::F, stage(turn), microbatch)));
                slots.push((back, Item::new(Kind::I, stage(chunks - 1 - turn), microbatch)));
                slots.push((back + 1, Item::new(Kind::W, stage(chunks - 1 - turn), microbatch)));
            }
            slots.sort_by_key(|&(slot, _)| slot);
            ended(slots.into_iter().map(|(_, item)| Action::One(item)))
        })
        .collect();
    Ok(Schedule { name: "grouped-interleaved".into(), rows })
}
