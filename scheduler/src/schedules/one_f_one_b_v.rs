//! The schedule 1F1B-V: its timeline and its rows.

use super::ScheduleError;
use crate::block::{self, BlockRow, PERIOD, Pass, first_slots, peak, repeat};
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use Pass::*;
use ir::schedule::{Kind, Schedule};

/// 1F1B-V (arXiv 2405.15362, section 4.3): a V with fused backwards. Its ranks hold about 2/3 of the activations of 1F1B's rank
/// 0.
///
/// In its building block the forwards take one slot, the backwards two. F of chunk 0 are on ranks 0..p in slots 1..=p, F of
/// chunk 1 back up in the next p, then B of chunk 1 and B of chunk 0. Three slots are left out wherever two would meet modulo
/// 6. The block is repeated, and passes move to earlier free slots if the peak memory does not rise. The order does not depend
/// on the costs.
///
/// Two ranks, three micro-batches; stages 0 and 3 on rank 0:
/// ```text
/// rank 0  0F0 0F1 0F2 3F0 3B0 3F1 3B1 0B0 3F2 3B2 0B1 0B2
/// rank 1  1F0 2F0 1F1 2F1 2B0 1B0 1F2 2F2 2B1 1B1 2B2 1B2
/// ```
pub(super) fn one_f_one_b_v(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let rows = repeat(&first_slots(&pattern(pipeline.ranks as usize)), pipeline.microbatches as usize);
    Ok(block::schedule("1f1b-v", &compacted(rows), true))
}

/// Returns the slots of each rank's passes, modulo the period. The W of a B is the second slot of the B.
fn pattern(ranks: usize) -> Vec<[usize; PERIOD]> {
    let mut pattern = vec![[0; PERIOD]; ranks];
    (0..ranks).for_each(|rank| pattern[rank][F0 as usize] = 1 + rank);
    (0..ranks).for_each(|step| pattern[ranks - 1 - step][F1 as usize] = 1 + ranks + step);
    let mut slot = 2 * ranks + 1 + if ranks.is_multiple_of(3) { 3 } else { 0 };
    let mut backwards = (3 - (ranks + 2) % 3) % 3; // since the last gap
    let down = (0..ranks).map(|rank| (rank, I1, W1));
    let up = (0..ranks).rev().map(|rank| (rank, I0, W0));
    for (rank, i, w) in down.chain(up) {
        pattern[rank][i as usize] = slot;
        pattern[rank][w as usize] = slot + 1;
        backwards += 1;
        slot += if backwards.is_multiple_of(3) { 5 } else { 2 };
    }
    pattern.iter_mut().flatten().for_each(|slot| *slot %= PERIOD);
    pattern
}

/// Moves each pass to the earliest slot after its inputs; a forward must not raise the peak memory.
fn compacted(mut rows: Vec<BlockRow>) -> Vec<BlockRow> {
    let (ranks, length) = (rows.len(), rows.iter().map(Vec::len).max().unwrap_or(0));
    rows.iter_mut().for_each(|row| row.resize(length, None));
    let limit = rows.iter().map(peak).max().unwrap_or(0);
    let mut held: Vec<Vec<i32>> = rows.iter().map(held_after).collect();
    let mut slots = vec![<[Vec<usize>; PERIOD]>::default(); ranks]; // of the passes so far, by pass
    for time in 0..length {
        for rank in 0..ranks {
            let Some(pass) = rows[rank][time] else { continue };
            let earliest = needs(&slots, rank, pass).map_or(0, |slot| slot + 1);
            let mut place = earliest;
            if pass.kind() == Kind::F {
                let full = held[rank][earliest..time].iter().rposition(|&held| held >= limit);
                place += full.map_or(0, |slot| slot + 1);
            }
            let row = &rows[rank];
            let mut slots_before = place..time;
            let free =
                slots_before.find(|&slot| row[slot].is_none() && (pass.kind() != Kind::I || row[slot + 1].is_none()));
            place = free.unwrap_or(time);
            rows[rank][time] = None;
            rows[rank][place] = Some(pass);
            held[rank][place..time].iter_mut().for_each(|held| *held += pass.held());
            slots[rank][pass as usize].push(place);
        }
    }
    rows
}

/// Returns the chunk activations held after each slot.
fn held_after(row: &BlockRow) -> Vec<i32> {
    let held = row.iter().scan(0, |held, slot| {
        *held += slot.map_or(0, Pass::held);
        Some(*held)
    });
    held.collect()
}

/// Returns the slot of the last input of a rank's next such pass. A B sends its gradient after its second slot.
fn needs(slots: &[[Vec<usize>; PERIOD]], rank: usize, pass: Pass) -> Option<usize> {
    let nth = slots[rank][pass as usize].len();
    let needed = match (pass.from(rank, slots.len()), pass.kind()) {
        (Some((other, _)), _) => Some((other, last_part(pass))),
        (None, Kind::W) => pass.before().map(|i| (rank, i)),
        (None, _) => pass.before().map(|before| (rank, last_part(before))),
    };
    let from = needed.map(|(rank, pass)| slots[rank][pass as usize][nth]);
    from.max(slots[rank][pass as usize].last().copied())
}

/// Returns the pass that ends a whole backward, its W; a forward is whole.
fn last_part(pass: Pass) -> Pass {
    pass.weight().unwrap_or(pass)
}
