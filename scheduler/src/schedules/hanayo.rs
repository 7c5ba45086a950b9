//! The schedule Hanayo: its timeline and its rows.

use super::ScheduleError;
use crate::actions::with_step_end;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Action, Item, Kind, Schedule};

/// Hanayo (arXiv 2308.15762): W waves back and forth over the ranks are v = 2W chunks per rank; a turn needs no message. More
/// waves give a smaller bubble. The paper has no published code; the order here follows a rule of its own:
///
/// a rank runs the first of the micro-batches that wait for it; at most 2p micro-batches are in flight.
///
/// The rule is applied in slots as the paper counts them, F one and B two, so that it does not depend on costs. A micro-batch
/// in flight waits only for its next rank, which is busy meanwhile: no order of this rule can deadlock. A rank holds at most
/// 2pv activations, with m = p micro-batches pv.
///
/// Two ranks, three micro-batches, one wave, f = i = w = 1:
/// ```text
/// rank 0  0F0 0F1 0F2 3F0 3B0---- 3F1 3B1---- ... 0B0---- ....... 0B1---- 3F2 3B2---- ............... 0B2----
/// rank 1  ... 1F0 2F0 1F1 2F1 1F2 2B0---- 1B0---- 2B1---- 1B1---- 2F2 ............... 2B2---- 1B2---- .......
/// ```
pub(super) fn hanayo(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let Pipeline { ranks, microbatches, .. } = *pipeline;
    let stages = pipeline.stages();
    let mut rows = vec![Vec::new(); ranks as usize];
    let mut free_at = vec![0; ranks as usize];
    let mut walkers: Vec<Walker> = Vec::new();
    let mut entering = 0..microbatches;
    for slot in 0.. {
        walkers.retain(|walker| walker.ready > slot || walker.next(stages).is_some());
        let room = 2 * ranks as usize - walkers.len();
        walkers.extend(entering.by_ref().take(room).map(|microbatch| Walker { microbatch, done: 0, ready: slot }));
        if walkers.is_empty() {
            break;
        }
        for walker in walkers.iter_mut().filter(|walker| walker.ready <= slot) {
            let Some((kind, stage)) = walker.next(stages) else { continue };
            let rank = pipeline.rank(stage, walker.microbatch) as usize;
            if free_at[rank] <= slot {
                rows[rank].push(Action::One(Item::new(kind, stage, walker.microbatch)));
                walker.done += 1;
                walker.ready = slot + if kind == Kind::F { 1 } else { 2 };
                free_at[rank] = walker.ready;
            }
        }
    }
    Ok(Schedule { name: "hanayo".into(), rows: rows.into_iter().map(with_step_end).collect() })
}

/// Checks that the chunks make whole waves.
pub(super) fn accepts(pipeline: &Pipeline) -> Result<(), ScheduleError> {
    let chunks = pipeline.chunks;
    if chunks.is_multiple_of(2) { Ok(()) } else { Err(ScheduleError::HalfWave { chunks }) }
}

/// A micro-batch in flight through all stages and back.
struct Walker {
    microbatch: u32,
    /// Number of its actions that have started.
    done: u32,
    /// Slot in which the last of these actions ends.
    ready: u32,
}

impl Walker {
    /// Returns the micro-batch's next action: its kind and stage.
    fn next(&self, stages: u32) -> Option<(Kind, u32)> {
        if self.done < stages {
            Some((Kind::F, self.done))
        } else {
            Some((Kind::B, (2 * stages - 1).checked_sub(self.done)?))
        }
    }
}
