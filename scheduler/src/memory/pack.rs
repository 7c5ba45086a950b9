//! Places for the blocks of a row, and for the scratch of its runs.
//!
//! Blocks are placed tier by tier, within a tier as the row brings them to life, each at the lowest place that is free for as
//! long as it lives. What lives long goes first in most of the orders: so it lies together from the bottom up, and what
//! lives short lies above it or in what it leaves (ZeRO, Rajbhandari et al. 2020, section 6.3, M_D: long-lived tensors are
//! kept apart from short-lived ones, lest holes remain that nothing fits). The order that takes least is kept. Scratch,
//! which lives shortest, is placed last, at the top of the arena if that is free.

use super::bound::Moment;
use super::needs::{At, Block, Needs};
use super::row::Layouts;
use super::scratch::Scratches;
use ir::program::Class;

/// Places for all that a row needs, from 0.
pub(super) struct Packed {
    pub(super) bytes: u64,
    /// Per instruction.
    pub(super) at: Vec<Vec<u64>>,
}

/// A part with its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    pub(super) block: usize,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) at: u64,
    pub(super) to: u64,
}

/// The tier of a block that lives for so long.
type Order = fn(&Block, usize) -> u32;

const ORDERS: [Order; 4] = [
    |_, life| life.leading_zeros(),
    |_, _| 0,
    |block, _| block.size.leading_zeros(),
    |block, life| (block.size * life as u64).leading_zeros(),
];

/// So small a part of the arena is not worth another order.
const ENOUGH: u64 = 200;

/// Places for the blocks of a row that stands above `held` bytes of the arena.
pub(super) fn pack(needs: &Needs, layouts: &Layouts, class: &Class, held: u64) -> Packed {
    let bound = Moment::fullest(needs, layouts, class).row_bytes();
    let enough = bound + (held + bound) / ENOUGH;
    let mut best: Option<(u64, Vec<u64>, Scratches)> = None;
    for order in ORDERS {
        let (places, parts) = place(needs, order);
        let scratches = Scratches::find(needs, layouts, class, &places, &parts);
        if best.as_ref().is_none_or(|(bytes, ..)| scratches.bytes < *bytes) {
            best = Some((scratches.bytes, places, scratches));
        }
        if best.as_ref().is_some_and(|(bytes, ..)| *bytes <= enough) {
            break;
        }
    }
    let (bytes, places, scratches) = best.unwrap_or_default();
    let place = |now: usize, at: &At| match *at {
        At::Part(part) => places[needs.parts[part].block] + needs.parts[part].offset,
        At::Block(block) => places[block],
        At::Scratch => scratches.at[now],
        At::Nowhere => 0,
    };
    let row = needs.at.iter().enumerate();
    Packed { bytes, at: row.map(|(now, at)| at.iter().map(|at| place(now, at)).collect()).collect() }
}

/// Per block its place, and all parts in the order of their starts.
fn place(needs: &Needs, order: Order) -> (Vec<u64>, Vec<Placed>) {
    let end = |block: &Block| needs.parts[block.parts.clone()].iter().map(|part| part.end).max().unwrap_or(block.start);
    let tiers: Vec<u32> = needs.blocks.iter().map(|block| order(block, end(block) - block.start)).collect();
    let mut all = tiers.clone();
    all.sort_unstable();
    all.dedup();
    let mut places = vec![0; needs.blocks.len()];
    let mut placed: Vec<Placed> = Vec::new();
    for tier in all {
        let mut walk = Walk { earlier: &placed, entered: 0, living: Vec::new(), ahead: Vec::new() };
        let mut fresh = Vec::new();
        for (index, block) in needs.blocks.iter().enumerate().filter(|(index, _)| tiers[*index] == tier) {
            walk.go_to(block.start, end(block));
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

/// The parts of a block at its place; neighbours with one end are one.
fn merged(needs: &Needs, block: usize, at: u64) -> Vec<Placed> {
    let start = needs.blocks[block].start;
    let mut parts: Vec<Placed> = Vec::new();
    for part in &needs.parts[needs.blocks[block].parts.clone()] {
        let (from, to) = (at + part.offset, at + part.offset + part.size);
        match parts.last_mut() {
            Some(last) if last.end == part.end && last.to == from => last.to = to,
            _ => parts.push(Placed { block, start, end: part.end, at: from, to }),
        }
    }
    parts
}

/// Goes through a row and knows what has been placed there.
pub(super) struct Walk<'a> {
    /// Parts of earlier tiers, by start.
    earlier: &'a [Placed],
    /// How many of them have entered.
    entered: usize,
    /// What is there now, by place.
    pub(super) living: Vec<Placed>,
    /// What of earlier tiers will be there before the block in question is gone, by place.
    ahead: Vec<Placed>,
}

impl<'a> Walk<'a> {
    /// A walk through parts that are sorted by start.
    pub(super) fn through(parts: &'a [Placed]) -> Walk<'a> {
        Walk { earlier: parts, entered: 0, living: Vec::new(), ahead: Vec::new() }
    }

    fn enter(&mut self, part: Placed) {
        let place = self.living.partition_point(|other| other.at <= part.at);
        self.living.insert(place, part);
    }

    /// What has ended by `now` is gone, what has begun is there, what begins before `end` lies ahead.
    pub(super) fn go_to(&mut self, now: usize, end: usize) {
        self.living.retain(|part| part.end > now);
        while let Some(&part) = self.earlier.get(self.entered).filter(|part| part.start <= now) {
            self.entered += 1;
            if part.end > now {
                self.enter(part);
            }
        }
        let ahead = self.earlier[self.entered..].iter().take_while(|part| part.start < end);
        self.ahead.clear();
        self.ahead.extend(ahead);
        self.ahead.sort_unstable_by_key(|part| part.at);
    }

    /// The lowest place with so many free bytes.
    fn lowest(&self, size: u64) -> u64 {
        let (mut living, mut ahead) = (self.living.iter().peekable(), self.ahead.iter().peekable());
        let mut at = 0;
        loop {
            let next = match (living.peek(), ahead.peek()) {
                (Some(a), Some(b)) if a.at > b.at => ahead.next(),
                (None, _) => ahead.next(),
                (Some(_), _) => living.next(),
            };
            match next {
                Some(part) if part.at < at + size => at = at.max(part.to),
                _ => return at,
            }
        }
    }
}
