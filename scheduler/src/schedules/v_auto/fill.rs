//! Free slots filled with later passes of the same rank.

use super::highest;
use crate::block::{BlockRow, PERIOD, Pass};
use ir::schedule::Kind;

/// Fills each free slot, in order, with the next pass of its rank that can run then and does not raise the peak memory.
pub(super) fn fill(rows: &mut [BlockRow]) {
    let (ranks, length) = (rows.len(), rows.iter().map(Vec::len).max().unwrap_or(0));
    let last = rows.iter().map(|row| Pass::ALL.map(|pass| row.iter().rposition(|&slot| slot == Some(pass)))).collect();
    let mut fill = Fill { limit: highest(rows), last, held: vec![0; ranks], slots: vec![Default::default(); ranks] };
    for time in 0..length {
        for (rank, row) in rows.iter_mut().enumerate() {
            if let Some(from) = fill.fitting(rank, row, time) {
                row.swap(time, from);
            }
            if let Some(pass) = row.get(time).copied().flatten() {
                fill.slots[rank][pass as usize].push(time);
                fill.held[rank] += pass.held();
            }
        }
    }
}

struct Fill {
    limit: i32,
    /// Last slot of each rank and pass before anything moved.
    last: Vec<[Option<usize>; PERIOD]>,
    /// Chunk activations held up to the current slot.
    held: Vec<i32>,
    /// Slots up to the current one, by rank and pass.
    slots: Vec<[Vec<usize>; PERIOD]>,
}

impl Fill {
    /// Returns the slot of the pass that may move to a free slot.
    fn fitting(&self, rank: usize, row: &BlockRow, time: usize) -> Option<usize> {
        if row.get(time).is_none_or(Option::is_some) {
            return None;
        }
        let mut open = self.last[rank].map(|last| last > Some(time)); // passes not met yet
        let (mut change, mut peak) = (0, 0); // of the memory held between the two slots
        for (slot, pass) in row.iter().enumerate().skip(time + 1) {
            if !open.contains(&true) {
                return None;
            }
            let Some(pass) = *pass else { continue };
            let before = peak;
            change += pass.held();
            peak = peak.max(change);
            if !std::mem::replace(&mut open[pass as usize], false) {
                continue;
            }
            let fits = pass.kind() != Kind::F || self.held[rank] + before < self.limit;
            if fits && self.can_run(rank, pass, time) {
                return Some(slot);
            }
        }
        None
    }

    fn can_run(&self, rank: usize, pass: Pass, time: usize) -> bool {
        let nth = self.slots[rank][pass as usize].len();
        match pass.from(rank, self.slots.len()) {
            Some((other, _)) => self.slots[other][pass as usize].get(nth).is_some_and(|&slot| slot < time),
            None => pass.before().is_none_or(|before| self.slots[rank][before as usize].len() > nth),
        }
    }
}
