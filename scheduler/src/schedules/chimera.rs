//! The schedule Chimera: its timeline and its rows.

use super::ScheduleError;
use crate::actions::with_step_end;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Action, Item, Kind, Schedule};

/// Chimera (arXiv 2107.06925): two chains in opposite directions over the same ranks, each with its own copy of the
/// parameters. A unit has p micro-batches, half of them in each direction. In slots of one action, the j-th micro-batch of a
/// direction runs its F of stage k at 2j + k and its B at 2j + 2p-1 - k. No two actions of a rank share a slot. More
/// micro-batches form further units in sequence; the last one may be shorter.
///
/// Four ranks, four micro-batches, f = i = w = 1:
/// ```text
/// rank 0  0F0 0F1 ... 3F2 3B2---- 3F3 3B3---- ... 0B0---- ....... 0B1----
/// rank 1  ... 1F0 2F2 1F1 2F3 ... 2B2---- 1B0---- 2B3---- 1B1---- .......
/// rank 2  ... 1F2 2F0 1F3 2F1 ... 2B0---- 1B2---- 2B1---- 1B3---- .......
/// rank 3  0F2 0F3 ... 3F0 3B0---- 3F1 3B1---- ... 0B2---- ....... 0B3----
/// ```
pub(super) fn chimera(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let Pipeline { ranks, microbatches, .. } = *pipeline;
    let (per_unit, per_direction) = (ranks / 2, microbatches / 2);
    let rows = (0..ranks)
        .map(|rank| {
            let mut slots = Vec::new();
            for microbatch in 0..microbatches {
                let (unit, j) = (microbatch % per_direction / per_unit, microbatch % per_direction % per_unit);
                let stage = if pipeline.goes_up(microbatch) { ranks - 1 - rank } else { rank };
                slots.push((unit, 2 * j + stage, Item::new(Kind::F, stage, microbatch)));
                slots.push((unit, 2 * j + 2 * ranks - 1 - stage, Item::new(Kind::B, stage, microbatch)));
            }
            slots.sort_by_key(|&(unit, slot, _)| (unit, slot));
            with_step_end(slots.into_iter().map(|(.., item)| Action::One(item)))
        })
        .collect();
    Ok(Schedule { name: "chimera".into(), rows })
}

/// Checks that the numbers of ranks and micro-batches are even.
pub(super) fn accepts(pipeline: &Pipeline) -> Result<(), ScheduleError> {
    let shared = [("ranks", pipeline.ranks), ("micro-batches", pipeline.microbatches)];
    match shared.into_iter().find(|(_, number)| !number.is_multiple_of(2)) {
        Some((shared, number)) => Err(ScheduleError::Odd { shared, number }),
        None => Ok(()),
    }
}
