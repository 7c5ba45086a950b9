//! Offsets for the scratch of body calls. Scratch may overlap the call's results and its slots, as long as no two overlapping
//! values are live at the same instruction of the body.

use super::frame::FrameLayout;
use super::instructions::FrameLayouts;
use super::needs::Needs;
use super::walk::{Placed, Walk};
use ir::ids::BodyId;
use ir::program::{Class, Instr};
use std::collections::HashMap;
use std::rc::Rc;

/// Places of the scratches of a row.
#[derive(Default)]
pub(super) struct Scratches {
    /// The bytes that all takes together.
    pub(super) bytes: u64,
    /// Per instruction.
    pub(super) at: Vec<u64>,
}

/// A scratch may not begin between these two, neither included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Forbidden {
    above: i64,
    below: i64,
}

/// A run, and the constraints on the place of its scratch.
struct Choice {
    instr: usize,
    size: u64,
    /// The lowest place that is free.
    lowest: u64,
    /// Lowest offset above the tensors of all other instructions.
    free: u64,
    /// Ranges that its own results and slots forbid, relative to `base`.
    own: Rc<[Forbidden]>,
    base: u64,
}

impl Scratches {
    /// The lowest place of each determines the size of the arena; then each moves to the top if it can.
    pub(super) fn find(
        needs: &Needs,
        layouts: &FrameLayouts,
        class: &Class,
        places: &[u64],
        parts: &[Placed],
    ) -> Scratches {
        let mut known: HashMap<(BodyId, Vec<i64>), Rc<[Forbidden]>> = HashMap::new();
        let mut walk = Walk::through(parts);
        let mut choices = Vec::new();
        for (now, instr) in class.instrs.iter().enumerate() {
            let Instr::Run { token: None, body, .. } = instr else { continue };
            let layout = &layouts[*body];
            let size = layout.frame.scratch;
            if size == 0 {
                continue;
            }
            walk.go_to(now, now);
            let own = own_places(needs, now, places);
            let base = own.iter().flatten().min().copied().unwrap_or(0);
            let relative = own.iter().map(|at| at.map_or(-1, |at| (at - base) as i64)).collect();
            let own = known.entry((*body, relative)).or_insert_with_key(|(_, own)| forbidden(layout, own)).clone();
            let lowest = lowest(others(&walk, needs, now), size, &own, base);
            let free = others(&walk, needs, now).next_back().map_or(0, |part| part.to);
            choices.push(Choice { instr: now, size, lowest, free, own, base });
        }
        let extent = parts.iter().map(|part| part.to).max().unwrap_or(0);
        let bytes = choices.iter().map(|choice| choice.lowest + choice.size).max().unwrap_or(0).max(extent);
        let mut at = vec![0; class.instrs.len()];
        for choice in choices {
            let top = bytes - choice.size;
            at[choice.instr] = if choice.allows(top) { top } else { choice.lowest };
        }
        Scratches { bytes, at }
    }
}

impl Choice {
    fn allows(&self, at: u64) -> bool {
        let seen = at as i64 - self.base as i64;
        at >= self.free && self.own.iter().all(|it| seen <= it.above || seen >= it.below)
    }
}

/// Live parts but for those that the run of an instruction makes, by offset.
fn others<'a>(walk: &'a Walk<'_>, needs: &'a Needs, now: usize) -> impl DoubleEndedIterator<Item = &'a Placed> {
    walk.living.iter().filter(move |part| !(part.start == now && needs.blocks[part.block].within))
}

/// Places of the results of a run, in order, and then of its slots.
fn own_places(needs: &Needs, now: usize, places: &[u64]) -> Vec<Option<u64>> {
    let mut own = Vec::new();
    let first = needs.blocks.partition_point(|block| block.start < now);
    let blocks = needs.blocks[first..].iter().zip(&places[first..]);
    for (block, &place) in blocks.take_while(|(block, _)| block.start == now) {
        own.push((!block.parts.is_empty()).then_some(place));
    }
    own
}

/// Offsets at which the scratch must not begin, relative to the origin of `own`.
fn forbidden(layout: &FrameLayout, own: &[i64]) -> Rc<[Forbidden]> {
    let rows = layout.rows.iter().zip(own).map(|(row, &at)| (*row, at));
    let slots = layout.slots.iter().zip(&own[layout.rows.len()..]);
    let in_slots = slots.flat_map(|(slot, at)| slot.iter().map(move |piece| (*piece, at + piece.offset as i64)));
    let mut found = Vec::new();
    for (theirs, at) in rows.chain(in_slots) {
        let met = layout.scratch.iter().filter(|piece| piece.from < theirs.to && theirs.from < piece.to);
        found.extend(met.map(|piece| Forbidden {
            above: at - (piece.offset + piece.size) as i64,
            below: at + theirs.size as i64 - piece.offset as i64,
        }));
    }
    found.sort_unstable();
    let mut merged: Vec<Forbidden> = Vec::new();
    for next in found {
        match merged.last_mut() {
            Some(last) if next.above < last.below => last.below = last.below.max(next.below),
            _ => merged.push(next),
        }
    }
    merged.into()
}

/// The lowest place that neither others nor its own results and slots forbid. Both are sorted.
fn lowest<'a>(others: impl Iterator<Item = &'a Placed>, size: u64, own: &[Forbidden], base: u64) -> u64 {
    let (size, base) = (size as i64, base as i64);
    let others = others.map(|part| Forbidden { above: part.at as i64 - size, below: part.to as i64 });
    let own = own.iter().map(|it| Forbidden { above: it.above + base, below: it.below + base });
    let (mut others, mut own) = (others.peekable(), own.peekable());
    let mut at = 0;
    loop {
        let first = if others.peek().is_none_or(|other| own.peek().is_some_and(|own| own < other)) {
            own.next()
        } else {
            others.next()
        };
        match first {
            Some(it) if it.above < at => at = at.max(it.below),
            _ => return at as u64,
        }
    }
}
