//! The schedule grouped interleaved: its timeline and its rows.

use super::ScheduleError;
use crate::actions::with_step_end;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Action, Item, Kind, Schedule};

/// Grouped interleaved (GIS of PipeOffload, arXiv 2503.01328): interleaved 1F1B built from a block that repeats. In slots of
/// one action, f = i = w, a block runs g micro-batches through the v chunks of a rank, one per 3 slots. On rank r, F of chunk a
/// and the j-th micro-batch is at 3(ga + j) + r. I of chunk v-1-a is at 3(g(v-1) + ga + j) + r + 3(p-1-r) + 1, W right after
/// it. Blocks follow each other every 3gv slots; a row has its rank's actions in the order of slots. A rank's backwards follow
/// its forwards sooner than in interleaved 1F1B, so that rank 0 holds about gv activations.
///
/// Two ranks, four micro-batches, two chunks, f = i = w = 1:
/// ```text
/// rank 0  0F0 0F1 2F0 2F1 ... 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 ... 2I3 2W3 0I2 0W2 0I3 0W3
/// rank 1  ... 1F0 1F1 3F0 3I0 3W0 3F1 3I1 3W1 1F2 1I0 1W0 1F3 1I1 1W1 3F2 3I2 3W2 3F3 3I3 3W3 1I2 1W2 1I3 1W3 ...
/// ```
pub(super) fn grouped_interleaved(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let Pipeline { ranks, chunks, microbatches, .. } = *pipeline;
    let least = ranks.div_ceil(2);
    let group = pipeline.group.unwrap_or(ranks);
    if !(least..=ranks).contains(&group) {
        return Err(ScheduleError::GroupOfRanks { ranks, least, group });
    }
    let rows = (0..ranks)
        .map(|rank| {
            let mut slots = Vec::new();
            for (turn, microbatch) in (0..chunks).flat_map(|turn| (0..microbatches).map(move |j| (turn, j))) {
                let (block, place) = (microbatch / group, microbatch % group);
                let slot = 3 * (block * group * chunks + group * turn + place) + rank;
                let back = slot + 3 * group * (chunks - 1) + 3 * (ranks - 1 - rank) + 1;
                let (forward, backward) = (turn * ranks + rank, (chunks - 1 - turn) * ranks + rank);
                slots.push((slot, Item::new(Kind::F, forward, microbatch)));
                slots.push((back, Item::new(Kind::I, backward, microbatch)));
                slots.push((back + 1, Item::new(Kind::W, backward, microbatch)));
            }
            slots.sort_by_key(|&(slot, _)| slot);
            with_step_end(slots.into_iter().map(|(_, item)| Action::One(item)))
        })
        .collect();
    Ok(Schedule { name: "grouped-interleaved".into(), rows })
}
