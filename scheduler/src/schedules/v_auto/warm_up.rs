//! The warm-up of a building block's rows.

use super::highest;
use crate::block::{BlockRow, PERIOD, Pass, peak};
use Pass::*;
use ir::schedule::Kind;

/// Rebuilds each row before its first I of chunk 0: F of chunk 0, then F of both chunks in turns, up to the peak memory. Then
/// come I and W of chunk 1 and a forward, in turns.
pub(super) fn rebuilt(mut rows: Vec<BlockRow>, microbatches: usize) -> Vec<BlockRow> {
    let ranks = rows.len();
    let most = (highest(&rows) as usize).min(2 * ranks);
    for (rank, row) in rows.iter_mut().enumerate() {
        let of_f1 = (rank + 1).min(most / 2).min(microbatches);
        let of_f0 = (most - of_f1).min(microbatches);
        let mut left = take(row);
        let mut put = Put { row, at: rank, left: &mut left };
        let alone = 2 * (ranks - 1 - rank);
        for nth in 0..alone + rank + 1 {
            put.next_if(F0, nth < of_f0);
            if nth >= alone {
                put.next_if(F1, nth - alone < of_f1);
            }
        }
        while put.left.iter().any(|&left| left > 0) {
            put.next_if(I1, true);
            put.next_if(W1, true);
            let pass = if put.left[F1 as usize] > 0 { F1 } else { F0 };
            put.next_if(pass, true);
        }
    }
    rows
}

/// Removes all passes before the first I of chunk 0 from a row, and returns the number of each.
fn take(row: &mut BlockRow) -> [usize; PERIOD] {
    let mut taken = [0; PERIOD];
    for slot in row.iter_mut().take_while(|slot| **slot != Some(I0)) {
        if let Some(pass) = slot.take() {
            taken[pass as usize] += 1;
        }
    }
    taken
}

/// Writes passes into a row, slot by slot.
struct Put<'a> {
    row: &'a mut BlockRow,
    at: usize,
    left: &'a mut [usize; PERIOD],
}

impl Put<'_> {
    /// Moves to the next slot, and writes the pass if it is wanted and one is left.
    fn next_if(&mut self, pass: Pass, wanted: bool) {
        if wanted && self.left[pass as usize] > 0 {
            self.left[pass as usize] -= 1;
            if self.at >= self.row.len() {
                self.row.resize(self.at + 1, None);
            }
            self.row[self.at] = Some(pass);
        }
        self.at += 1;
    }
}

/// Delays the first W of each rank by the difference of `most` and its peak, since few micro-batches leave memory unused.
pub(super) fn release_weights(rows: &mut [BlockRow], most: i32) {
    for row in rows {
        let unused = (most - peak(row)).max(0) as usize;
        let weights = row.iter_mut().filter(|slot| slot.is_some_and(|pass| pass.kind() == Kind::W));
        let late: BlockRow = weights.take(unused).map(Option::take).collect();
        row.extend(late);
    }
}
