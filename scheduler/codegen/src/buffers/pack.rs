//! Offsets for the blocks of an instruction stream, and for the scratch of its body calls.
//!
//! Blocks are placed tier by tier, and within a tier in order of birth, or of death from the last one on. Each block gets the
//! lowest offset that is free for its whole lifetime.
//!
//! Blocks that live long, or that are live at the peak, go first, so they are contiguous from the bottom up. Short-lived
//! blocks go above them or into their gaps (ZeRO, Rajbhandari et al. 2020, section 6.3, M_D: long-lived tensors are
//! separated from short-lived ones to avoid fragmentation). The order with the smallest arena wins.
//!
//! Sums of gradients that wait for the update are made layer by layer while saved activations of the layers are freed. Where these
//! begin at the bottom and the sums at the top, they take turns with the same bytes.
//!
//! Scratch has the shortest lifetime and is placed last, at the top of the arena if that is free.

use super::bound::{LiveBytes, live_bytes};
use super::instructions::FrameLayouts;
use super::interval;
use super::needs::{At, Needs};
use super::resident::ResidentEnds;
use super::scratch::Scratches;
use super::walk::{Placed, Walk, merged};
use ir::program::Class;
use std::cmp::Reverse;

/// Places for all that a row needs.
pub(super) struct Packed {
    pub(super) bytes: u64,
    /// Bytes of host memory.
    pub(super) host: u64,
    /// Per instruction.
    pub(super) at: Vec<Vec<u64>>,
}

/// Properties of a block by which blocks are ordered.
struct BlockFacts {
    size: u64,
    /// Instructions for which it is there.
    life: u64,
    /// The most that is there while it is.
    concurrent: u64,
}

/// The tier of a block: the greatest come first.
type Tier = fn(&BlockFacts) -> u64;

const LIFE: Tier = |facts| u64::from(facts.life.ilog2());
const CONCURRENT: Tier = |facts| facts.concurrent;
const ALL: Tier = |_| 0;
const SIZE: Tier = |facts| u64::from(facts.size.max(1).ilog2());
const AREA: Tier = |facts| u64::from((facts.size * facts.life).max(1).ilog2());

/// How blocks of a tier get places.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// In the order of birth, at the lowest offsets.
    Birth,
    /// The same, but what waits for the update at the highest offsets below the bound.
    Ends,
    /// In the order of death, from the last one on.
    Death,
}

impl Within {
    /// Start and end of a life as the order sees it. In the order of death, time runs backward from the last end.
    fn turned_life(self, start: usize, end: usize, last: usize) -> (usize, usize) {
        match self {
            Within::Birth | Within::Ends => (start, end),
            Within::Death => (last - end, last - start),
        }
    }

    fn turned(self, part: Placed, last: usize) -> Placed {
        let (start, end) = self.turned_life(part.start, part.end, last);
        Placed { start, end, ..part }
    }
}

const ORDERS: [(Tier, Within); 8] = [
    (LIFE, Within::Birth),
    (CONCURRENT, Within::Ends),
    (CONCURRENT, Within::Birth),
    (CONCURRENT, Within::Death),
    (ALL, Within::Birth),
    (SIZE, Within::Birth),
    (AREA, Within::Birth),
    (LIFE, Within::Death),
];

/// So small a part of the arena is not worth another order.
const ENOUGH: u64 = 200;

/// Places for the blocks of a row above the resident tensors.
pub(super) fn pack(needs: &Needs, layouts: &FrameLayouts, class: &Class, residents: ResidentEnds) -> Packed {
    let held = residents.device;
    let live_bytes: Vec<u64> = live_bytes(needs, layouts, class).iter().map(LiveBytes::bytes).collect();
    let bound = live_bytes.iter().max().copied().unwrap_or(0);
    let enough = bound + (held + bound) / ENOUGH;
    let facts = facts(needs, &live_bytes);
    let mut best: Option<(u64, Vec<u64>, Scratches)> = None;
    for (tier, within) in ORDERS {
        let (places, parts) = place(needs, facts.iter().map(tier).collect(), within, bound);
        let scratches = Scratches::find(needs, layouts, class, &places, &parts);
        if best.as_ref().is_none_or(|(bytes, ..)| scratches.bytes < *bytes) {
            best = Some((scratches.bytes, places, scratches));
        }
        if best.as_ref().is_some_and(|(bytes, ..)| *bytes <= enough) {
            break;
        }
    }
    let (bytes, places, scratches) = best.unwrap_or_default();
    let (host, in_host) = interval::pack(&needs.host);
    let row = needs.at.iter().enumerate().map(|(now, at)| {
        let offsets = at.iter().map(|at| match *at {
            At::BufferPart(part) => held + places[needs.parts[part].block] + needs.parts[part].offset,
            At::Buffer(block) => held + places[block],
            At::Host(bundle) => residents.host + in_host[bundle],
            At::Scratch => held + scratches.at[now],
            At::Nowhere => held,
        });
        offsets.collect()
    });
    Packed { bytes: held + bytes, host: residents.host + host, at: row.collect() }
}

fn facts(needs: &Needs, live_bytes: &[u64]) -> Vec<BlockFacts> {
    let most = Most::of(live_bytes);
    let facts = needs.blocks.iter().map(|block| {
        let end = needs.end(block);
        let life = (end - block.start).max(1) as u64;
        BlockFacts { size: block.size, life, concurrent: most.within(block.start, end) }
    });
    facts.collect()
}

/// The greatest number of any range, from those of all ranges whose length is a power of two.
struct Most(Vec<Vec<u64>>);

impl Most {
    fn of(numbers: &[u64]) -> Most {
        let mut levels = vec![numbers.to_vec()];
        let mut half = 1;
        while 2 * half <= numbers.len() {
            let below = &levels[levels.len() - 1];
            levels.push(below.iter().zip(&below[half..]).map(|(a, b)| *a.max(b)).collect());
            half *= 2;
        }
        Most(levels)
    }

    fn within(&self, from: usize, to: usize) -> u64 {
        let Some(level) = (to - from).checked_ilog2() else { return 0 };
        let numbers = &self.0[level as usize];
        numbers[from].max(numbers[to - (1 << level)])
    }
}

/// Per block its place, and all parts in the order of their starts.
fn place(needs: &Needs, tiers: Vec<u64>, within: Within, bound: u64) -> (Vec<u64>, Vec<Placed>) {
    let lives = needs.blocks.iter().map(|block| (block.start, needs.end(block).max(block.start)));
    let last = lives.clone().map(|(_, end)| end).max().unwrap_or(0);
    let lives: Vec<(usize, usize)> = lives.map(|(start, end)| within.turned_life(start, end, last)).collect();
    let mut blocks: Vec<usize> = (0..needs.blocks.len()).collect();
    // The sort is stable: what begins at once stays as the row has it.
    blocks.sort_by_key(|&block| (Reverse(tiers[block]), lives[block].0));
    let mut places = vec![0; needs.blocks.len()];
    let mut placed: Vec<Placed> = Vec::new();
    for tier in blocks.chunk_by(|&a, &b| tiers[a] == tiers[b]) {
        let mut walk = Walk::through(&placed);
        let mut fresh = Vec::new();
        for &index in tier {
            let (start, end) = lives[index];
            walk.go_to(start, end);
            let block = &needs.blocks[index];
            let at_top = within == Within::Ends && needs.waits_for_update(block);
            let highest = if at_top { walk.highest(block.size, bound) } else { None };
            places[index] = highest.unwrap_or_else(|| walk.lowest(block.size));
            for part in merged(needs, index, places[index]) {
                let part = within.turned(part, last);
                walk.enter(part);
                fresh.push(part);
            }
        }
        placed.extend(fresh);
        placed.sort_by_key(|part| part.start);
    }
    if within == Within::Death {
        placed = placed.into_iter().map(|part| within.turned(part, last)).collect();
        placed.sort_by_key(|part| part.start);
    }
    (places, placed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_a_range() {
        let most = Most::of(&[3, 1, 4, 1, 5]);
        assert_eq!([(0, 2), (1, 2), (1, 4), (0, 5), (3, 3)].map(|(from, to)| most.within(from, to)), [3, 1, 4, 5, 0]);
    }
}
