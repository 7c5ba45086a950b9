//! Building blocks of V pipelines with two chunks (Qi et al., Pipeline Parallelism with Controllable Memory,
//! arXiv 2405.15362). A building block is the slots of one micro-batch's passes. The block is repeated every [`PERIOD`]
//! slots, then squeezed.
//!
//! A row has a slot for each unit of time. Passes of one kind run in micro-batch order, so the slots determine the schedule.
//! Rank r has stage r (chunk 0) and stage 2p-1-r (chunk 1).

mod reorder;
mod squeeze;

pub(crate) use reorder::reordered;
pub(crate) use squeeze::{ends, squeeze};

use crate::actions::with_step_end;
use ir::schedule::{Action, Item, Kind, Schedule};

/// Slots from one micro-batch to the next: two each of F, I and W.
pub(crate) const PERIOD: usize = 6;

/// A pass of one micro-batch on a rank, in an order that respects dependencies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pass {
    /// Forward of chunk 0: from rank 0 to the last.
    F0,
    /// Forward of chunk 1: from the last rank to rank 0.
    F1,
    /// Gradient of the inputs of chunk 1: from rank 0 to the last.
    I1,
    /// Gradient of the inputs of chunk 0: from the last rank to rank 0.
    I0,
    /// Gradient of the weights of chunk 1.
    W1,
    /// Gradient of the weights of chunk 0.
    W0,
}

use Pass::*;

/// The slots of a rank, each with at most one pass.
pub(crate) type BlockRow = Vec<Option<Pass>>;

impl Pass {
    /// All passes, in order.
    pub(crate) const ALL: [Pass; PERIOD] = [F0, F1, I1, I0, W1, W0];

    /// Returns the kind of the pass's action.
    pub(crate) fn kind(self) -> Kind {
        match self {
            F0 | F1 => Kind::F,
            I1 | I0 => Kind::I,
            W1 | W0 => Kind::W,
        }
    }

    /// Returns whether the pass runs from rank 0 to the last rank.
    pub(crate) fn ascends(self) -> bool {
        matches!(self, F0 | I1)
    }

    /// Returns the stage of the pass on a rank.
    pub(crate) fn stage(self, rank: usize, ranks: usize) -> usize {
        if matches!(self, F0 | I0 | W0) { rank } else { 2 * ranks - 1 - rank }
    }

    /// Returns the pass on the same rank that must come first.
    pub(crate) fn before(self) -> Option<Pass> {
        match self {
            F0 => None,
            F1 => Some(F0),
            I1 => Some(F1),
            I0 | W1 => Some(I1),
            W0 => Some(I0),
        }
    }

    /// Returns the rank whose same pass must come first, and the hop between the two ranks. Hop s joins stages s and s+1.
    pub(crate) fn from(self, rank: usize, ranks: usize) -> Option<(usize, usize)> {
        let other = match self {
            F0 | I1 => rank.checked_sub(1)?,
            F1 | I0 => Some(rank + 1).filter(|&other| other < ranks)?,
            W1 | W0 => return None,
        };
        Some((other, self.stage(rank, ranks).min(self.stage(other, ranks))))
    }

    /// Returns the W that belongs to an I.
    pub(crate) fn weight(self) -> Option<Pass> {
        match self {
            I1 => Some(W1),
            I0 => Some(W0),
            _ => None,
        }
    }

    /// Returns the change in the number of saved chunk activations.
    pub(crate) fn held(self) -> i32 {
        match self {
            F0 | F1 => 1,
            I1 | I0 => 0,
            W1 | W0 => -1,
        }
    }
}

/// Returns the first slots of each rank's passes. Each is the earliest slot that has its place in `pattern` (slots modulo the
/// period) and comes after the passes that it depends on.
pub(crate) fn first_slots(pattern: &[[usize; PERIOD]]) -> Vec<[usize; PERIOD]> {
    let ranks = pattern.len();

    let mut slots = vec![[0; PERIOD]; ranks];
    let mut now = PERIOD;
    for pass in [F0, F1, I1, I0] {
        for step in 0..ranks {
            let rank = if pass.ascends() { step } else { ranks - 1 - step };
            let slot = next_at(pattern[rank][pass as usize], now);
            slots[rank][pass as usize] = slot;
            now = slot + 1;
            if let Some(w) = pass.weight() {
                slots[rank][w as usize] = next_at(pattern[rank][w as usize], now);
            }
        }
    }
    slots
}

/// Returns the first slot from `from` on that has a place in the period.
fn next_at(place: usize, from: usize) -> usize {
    from + (place + PERIOD - from % PERIOD) % PERIOD
}

/// Repeats the block for every micro-batch, given the first slots of each rank's passes.
pub(crate) fn repeat(first: &[impl AsRef<[usize]>], microbatches: usize) -> Vec<BlockRow> {
    let last = first.iter().flat_map(|slots| slots.as_ref()).max().map_or(0, |slot| slot + PERIOD * microbatches);
    let rows = first.iter().map(|slots| {
        let mut row = vec![None; last + 1];
        for (pass, slot) in Pass::ALL.into_iter().zip(slots.as_ref()) {
            (0..microbatches).for_each(|microbatch| row[slot + PERIOD * microbatch] = Some(pass));
        }
        row
    });
    rows.collect()
}

/// Returns the largest number of chunk activations that a row saves at a time, each from its F to its W.
pub(crate) fn peak(row: &BlockRow) -> i32 {
    let held = row.iter().flatten().scan(0, |held, pass| {
        *held += pass.held();
        Some(*held)
    });
    held.max().unwrap_or(0)
}

/// Relabels the W of a row so that they follow the order of the I.
pub(crate) fn relabel_weights(row: &mut BlockRow) {
    let weights: Vec<Pass> = row.iter().flatten().filter_map(|pass| pass.weight()).collect();
    let places = row.iter_mut().flatten().filter(|pass| pass.kind() == Kind::W);
    places.zip(weights).for_each(|(place, weight)| *place = weight);
}

/// Converts rows to a schedule. With `fused`, each I becomes a B and W are left out.
pub(crate) fn schedule(name: &str, rows: &[BlockRow], fused: bool) -> Schedule {
    let ranks = rows.len();
    let rows = rows.iter().enumerate().map(|(rank, row)| actions(row, rank, ranks, fused));
    Schedule { name: name.into(), rows: rows.collect() }
}

fn actions(row: &BlockRow, rank: usize, ranks: usize, fused: bool) -> Vec<Action> {
    let mut count = [0; PERIOD];
    let mut actions = Vec::with_capacity(row.len());
    for &pass in row.iter().flatten() {
        let microbatch = count[pass as usize];
        count[pass as usize] += 1;
        let kind = match pass.kind() {
            Kind::I if fused => Kind::B,
            Kind::W if fused => continue,
            kind => kind,
        };
        actions.push(Action::One(Item::new(kind, pass.stage(rank, ranks) as u32, microbatch)));
    }
    with_step_end(actions)
}
