//! Warm-up and cool-down of V-Half and V-Min. Passes outside the stable phase move to earlier free slots if the peak memory
//! does not rise.

use super::{BlockRow, PERIOD, Pass, relabel_weights, repeat, squeeze};
use Pass::*;
use ir::schedule::Kind;

/// Returns the rows of a block of F and I, given each rank's first slots. The block is repeated, W fill free slots, and passes
/// move twice.
///
/// The first time all passes of warm-up and cool-down move, W included. Then each W is put into a free slot again, and the F
/// and I of the cool-down move.
pub(crate) fn reordered(first: &[[usize; 4]], microbatches: usize) -> Vec<BlockRow> {
    let rows = repeat(first, microbatches).into_iter().map(with_weights).collect();
    let rows = moved(rows, true).into_iter().map(without_weights).collect();
    let rows = moved(rows, false).into_iter().map(without_weights);
    rows.map(with_weights).collect()
}

/// Puts each W of a row into the first free slot after its I. W of chunk 1 go first.
fn with_weights(mut row: BlockRow) -> BlockRow {
    while row.last().is_some_and(Option::is_none) {
        row.pop();
    }
    let mut waiting = Weights::default();
    for slot in &mut row {
        match *slot {
            Some(pass) => waiting.add(pass),
            None => *slot = waiting.take(),
        }
    }
    row.extend(std::iter::from_fn(|| waiting.take().map(Some)));
    row
}

fn without_weights(mut row: BlockRow) -> BlockRow {
    row.iter_mut().for_each(|slot| *slot = slot.filter(|pass| pass.kind() != Kind::W));
    row
}

/// Number of W that can run: of chunk 1, of chunk 0.
#[derive(Default)]
struct Weights([u32; 2]);

impl Weights {
    fn add(&mut self, pass: Pass) {
        match pass {
            I1 => self.0[0] += 1,
            I0 => self.0[1] += 1,
            _ => {}
        }
    }

    fn take(&mut self) -> Option<Pass> {
        let chunk = self.0.iter().position(|&count| count > 0)?;
        self.0[chunk] -= 1;
        Some([W1, W0][chunk])
    }
}

/// Moves passes to earlier slots, then squeezes the rows. With `weights`, the rows have W, which move too. Without, each W
/// counts as if it were in the first free slot, and the warm-up stays as it is.
fn moved(rows: Vec<BlockRow>, weights: bool) -> Vec<BlockRow> {
    let (ranks, length) = (rows.len(), rows.iter().map(Vec::len).max().unwrap_or(0));
    let mut moving: Vec<Moving> = rows.into_iter().map(|row| Moving::new(row, length, weights)).collect();
    let limit = moving.iter().map(|row| row.peak).max().unwrap_or(0);
    let last = moving.first().map_or(0, |row| row.row.iter().filter(|&&slot| slot == Some(F0)).count());
    let mut phase = if weights { Phase::WarmUp } else { Phase::KeptWarmUp };
    for time in 0..length {
        for rank in 0..ranks {
            let Some(pass) = moving[rank].row[time] else { continue };
            phase = phase.at(rank, pass, moving[rank].times[F0 as usize].len() + 1 == last);
            let place = match phase {
                Phase::WarmUp | Phase::CoolDown => {
                    let needs = pass
                        .from(rank, ranks)
                        .map(|(other, _)| moving[other].times[pass as usize][moving[rank].times[pass as usize].len()]);
                    moving[rank].place(pass, time, needs, limit)
                }
                Phase::KeptWarmUp | Phase::Stable | Phase::LastForward => time,
            };
            moving[rank].put(pass, time, place);
            if phase == Phase::LastForward {
                phase = Phase::CoolDown;
            }
        }
    }
    let mut rows: Vec<BlockRow> = moving.into_iter().map(|moving| moving.row).collect();
    if weights {
        rows.iter_mut().for_each(relabel_weights);
    } else {
        rows = rows.into_iter().map(with_weights).collect();
    }
    squeeze(&rows).expect("passes move no earlier than what they need")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp,
    KeptWarmUp,
    Stable,
    LastForward,
    CoolDown,
}

impl Phase {
    /// Returns the phase after a pass. Rank 0's first I of chunk 0 ends the warm-up, the pipeline's last F of chunk 0 the
    /// stable phase.
    fn at(self, rank: usize, pass: Pass, last: bool) -> Phase {
        match (self, pass) {
            (Phase::WarmUp | Phase::KeptWarmUp, I0) if rank == 0 => Phase::Stable,
            (Phase::Stable, F0) if last => Phase::LastForward,
            _ => self,
        }
    }
}

/// State of a row after a slot.
#[derive(Clone, Copy, Default, PartialEq)]
struct SlotState {
    /// Number of saved chunk activations.
    held: i32,
    /// Number of W that wait for a slot; 0 if the row has its W.
    waiting: i32,
}

/// A row whose passes move.
struct Moving {
    row: BlockRow,
    /// State after each slot.
    states: Vec<SlotState>,
    peak: i32,
    weights: bool,
    /// Slots of the passes placed so far, by pass.
    times: [Vec<usize>; PERIOD],
    /// Slots of the I placed so far, sorted; and of the W.
    gradients: Vec<usize>,
    weight_slots: Vec<usize>,
}

impl Moving {
    fn new(mut row: BlockRow, length: usize, weights: bool) -> Moving {
        row.resize(length, None);
        let mut moving = Moving {
            states: Vec::with_capacity(length),
            peak: 0,
            row,
            weights,
            times: Default::default(),
            gradients: Vec::new(),
            weight_slots: Vec::new(),
        };
        let mut state = SlotState::default();
        for slot in 0..length {
            state = moving.after(state, moving.row[slot]);
            moving.states.push(state);
            moving.peak = moving.peak.max(state.held);
        }
        moving
    }

    /// Returns the state after a slot.
    fn after(&self, before: SlotState, slot: Option<Pass>) -> SlotState {
        let SlotState { held, waiting } = before;
        match slot {
            Some(pass) if self.weights => SlotState { held: held + pass.held(), waiting: 0 },
            Some(pass) => SlotState { held: held + pass.held(), waiting: waiting + i32::from(pass.weight().is_some()) },
            None if waiting > 0 => SlotState { held: held - 1, waiting: waiting - 1 },
            None => before,
        }
    }

    /// Returns the earliest free slot, at most `time`, that comes after the pass's inputs and does not raise the peak.
    fn place(&mut self, pass: Pass, time: usize, needs: Option<usize>, limit: i32) -> usize {
        let own = if pass.kind() == Kind::W {
            let nth = self.weight_slots.len();
            self.weight_slots.last().copied().max(self.gradients.get(nth).copied())
        } else {
            let nth = self.times[pass as usize].len();
            let before = pass.before().map(|before| self.times[before as usize][nth]);
            self.times[pass as usize].last().copied().max(before)
        };
        let earliest = own.max(needs).map_or(0, |slot| slot + 1);
        (earliest..time).find(|&slot| self.row[slot].is_none() && self.fits(pass, time, slot, limit)).unwrap_or(time)
    }

    /// Returns whether the pass may move to the earlier slot `to`. If so, `states` has the move applied.
    fn fits(&mut self, pass: Pass, from: usize, to: usize, limit: i32) -> bool {
        let mut state = to.checked_sub(1).map_or(SlotState::default(), |slot| self.states[slot]);
        let mut states = Vec::with_capacity(from - to);
        for slot in to..self.row.len() {
            state = match slot {
                _ if slot == to => self.after(state, Some(pass)),
                _ if slot == from => self.after(state, None),
                _ => self.after(state, self.row[slot]),
            };
            if slot >= from && state == self.states[slot] {
                break;
            }
            if state.held > limit {
                return false;
            }
            states.push(state);
        }
        self.states[to..to + states.len()].copy_from_slice(&states);
        true
    }

    fn put(&mut self, pass: Pass, from: usize, to: usize) {
        self.row[from] = None;
        self.row[to] = Some(pass);
        self.times[pass as usize].push(to);
        match pass.kind() {
            Kind::W => self.weight_slots.push(to),
            Kind::I => {
                let place = self.gradients.partition_point(|&slot| slot < to);
                self.gradients.insert(place, to);
            }
            _ => {}
        }
    }
}
