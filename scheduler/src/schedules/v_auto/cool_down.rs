//! The cool-down of a building block's rows.

use super::highest;
use crate::block::{BlockRow, Pass, squeeze};
use Pass::*;
use ir::schedule::Kind;

/// Rebuilds the cool-down. The last I follow each other as closely as possible once rank 0 has run its last forward. The W of
/// the activations still held fill the free slots, and the rows are squeezed. Returns `None` if that does not fit.
pub(super) fn rebuilt(mut rows: Vec<BlockRow>, microbatches: usize) -> Option<Vec<BlockRow>> {
    let ranks = rows.len();
    let most = highest(&rows) as usize;
    let of_i0 = most.div_ceil(2).min(microbatches);
    let of_i1 = (most - of_i0).min(microbatches);
    let start = rows.first()?.iter().rposition(|&slot| slot == Some(F1))?;
    for (rank, row) in rows.iter_mut().enumerate() {
        let i1 = take_last(row, of_i1.min(rank + 1), |pass| pass == I1);
        let i0 = take_last(row, of_i0, |pass| pass == I0);
        take_weights(row, i1, i0, most);
        for nth in 0..i0 {
            let slot = (start + 2 * ranks).checked_sub(rank + 2 * nth)?;
            put(row, slot, I0).is_none().then_some(())?;
        }
        for nth in 0..i1 {
            put(row, (start + 1 + rank).checked_sub(2 * nth)?, I1);
        }
        add_weights(row);
    }
    squeeze(&rows)
}

/// Removes the last `number` passes that satisfy `such` from a row, and returns how many there were.
fn take_last(row: &mut BlockRow, number: usize, such: impl Fn(Pass) -> bool) -> usize {
    row.iter_mut().rev().filter(|slot| slot.is_some_and(&such)).take(number).map(Option::take).count()
}

/// Removes the last W of a row: one per I of each chunk, and at most the largest number of chunk activations.
fn take_weights(row: &mut BlockRow, i1: usize, i0: usize, most: usize) {
    let (mut w1, mut w0) = (0, 0);
    for slot in row.iter_mut().rev() {
        if w1 >= i1 && w0 >= i0 && w1 + w0 >= most {
            return;
        }
        match slot {
            Some(W1) => w1 += 1,
            Some(W0) => w0 += 1,
            _ => continue,
        }
        *slot = None;
    }
}

/// Puts a pass into a slot, and returns the slot's former pass.
fn put(row: &mut BlockRow, slot: usize, pass: Pass) -> Option<Pass> {
    if slot >= row.len() {
        row.resize(slot + 1, None);
    }
    row[slot].replace(pass)
}

/// Puts the missing W into the free slots after the last W, those of chunk 1 first.
fn add_weights(row: &mut BlockRow) {
    let last = row.iter().rposition(|slot| slot.is_some_and(|pass| pass.kind() == Kind::W));
    let (mut w1, mut w0) = (0, 0);
    for (at, slot) in row.iter_mut().enumerate() {
        match slot {
            Some(I1) => w1 += 1,
            Some(I0) => w0 += 1,
            Some(W1) => w1 -= 1,
            Some(W0) => w0 -= 1,
            None if Some(at) > last && w1 > 0 => {
                *slot = Some(W1);
                w1 -= 1;
            }
            None if Some(at) > last && w0 > 0 => {
                *slot = Some(W0);
                w0 -= 1;
            }
            _ => {}
        }
    }
    row.extend((0..w1).map(|_| Some(W1)));
    row.extend((0..w0).map(|_| Some(W0)));
}
