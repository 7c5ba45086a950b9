//! Offsets for the blocks of an instruction stream, and for the scratch of its body calls.
//!
//! Blocks are placed tier by tier, and within a tier in order of birth. Each block gets the lowest offset that is free for
//! its whole lifetime.
//!
//! Blocks that live long, or that are live at the peak, go first, so they are contiguous from the bottom up. Short-lived
//! blocks go above them or into their gaps (ZeRO, Rajbhandari et al. 2020, section 6.3, M_D: long-lived tensors are
//! separated from short-lived ones to avoid fragmentation). The order with the smallest arena wins.
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
type PackOrder = fn(&BlockFacts) -> u64;

const ORDERS: [PackOrder; 5] = [
    |facts| u64::from(facts.life.ilog2()),
    |facts| facts.concurrent,
    |_| 0,
    |facts| u64::from(facts.size.max(1).ilog2()),
    |facts| u64::from((facts.size * facts.life).max(1).ilog2()),
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
    for order in ORDERS {
        let (places, parts) = place(needs, facts.iter().map(order).collect());
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
    let place = |now: usize, at: &At| match *at {
        At::BufferPart(part) => held + places[needs.parts[part].block] + needs.parts[part].offset,
        At::Buffer(block) => held + places[block],
        At::Host(bundle) => residents.host + in_host[bundle],
        At::Scratch => held + scratches.at[now],
        At::Nowhere => held,
    };
    let row = needs.at.iter().enumerate();
    Packed {
        bytes: held + bytes,
        host: residents.host + host,
        at: row.map(|(now, at)| at.iter().map(|at| place(now, at)).collect()).collect(),
    }
}

fn facts(needs: &Needs, live_bytes: &[u64]) -> Vec<BlockFacts> {
    let most = Most::of(live_bytes);
    let facts_of = |block: &super::needs::Buffer| {
        let end = needs.end(block);
        let life = (end - block.start).max(1) as u64;
        BlockFacts { size: block.size, life, concurrent: most.within(block.start, end) }
    };
    needs.blocks.iter().map(facts_of).collect()
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
fn place(needs: &Needs, tiers: Vec<u64>) -> (Vec<u64>, Vec<Placed>) {
    let mut blocks: Vec<usize> = (0..needs.blocks.len()).collect();
    // The sort is stable: within a tier they stay as the row has them.
    blocks.sort_by_key(|&block| Reverse(tiers[block]));
    let mut places = vec![0; needs.blocks.len()];
    let mut placed: Vec<Placed> = Vec::new();
    for tier in blocks.chunk_by(|&a, &b| tiers[a] == tiers[b]) {
        let mut walk = Walk::through(&placed);
        let mut fresh = Vec::new();
        for &index in tier {
            let block = &needs.blocks[index];
            walk.go_to(block.start, needs.end(block));
            places[index] = walk.lowest(block.size);
            for part in merged(needs, index, places[index]) {
                walk.enter(part);
                fresh.push(part);
            }
        }
        placed.extend(fresh);
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
