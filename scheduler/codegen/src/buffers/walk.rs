//! State of a walk through an instruction stream while blocks get their offsets.

use super::needs::Needs;

/// A part with its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    pub(super) block: usize,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) at: u64,
    pub(super) to: u64,
}

/// The parts of a block at its place; neighbours with one end are one.
pub(super) fn merged(needs: &Needs, block: usize, at: u64) -> Vec<Placed> {
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
    /// Live blocks, by offset.
    pub(super) living: Vec<Placed>,
    /// Blocks of earlier tiers that begin before the end of the current block, by offset.
    ahead: Vec<Placed>,
}

impl<'a> Walk<'a> {
    /// A walk through parts that are sorted by start.
    pub(super) fn through(parts: &'a [Placed]) -> Walk<'a> {
        Walk { earlier: parts, entered: 0, living: Vec::new(), ahead: Vec::new() }
    }

    pub(super) fn enter(&mut self, part: Placed) {
        let place = self.living.partition_point(|other| other.at <= part.at);
        self.living.insert(place, part);
    }

    /// Moves to `now`: drops blocks that have ended, adds those that have begun, and collects those that begin before `end`.
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

    /// The lowest offset with `size` free bytes.
    pub(super) fn lowest(&self, size: u64) -> u64 {
        let mut at = 0;
        for part in self.by_offset() {
            if at + size <= part.at {
                break;
            }
            at = at.max(part.to);
        }
        at
    }

    /// The highest offset with `size` free bytes up to `below`; `None` if there is no such offset.
    pub(super) fn highest(&self, size: u64, below: u64) -> Option<u64> {
        let (mut at, mut highest) = (0, None);
        for (from, to) in self.by_offset().map(|part| (part.at, part.to)).chain([(below, below)]) {
            let end = from.min(below);
            if at + size <= end {
                highest = Some(end - size);
            }
            at = at.max(to);
        }
        highest
    }

    /// Live blocks and those ahead, by offset.
    fn by_offset(&self) -> impl Iterator<Item = &Placed> {
        let (mut living, mut ahead) = (self.living.iter().peekable(), self.ahead.iter().peekable());
        std::iter::from_fn(move || match (living.peek(), ahead.peek()) {
            (Some(a), Some(b)) if a.at > b.at => ahead.next(),
            (None, _) => ahead.next(),
            (Some(_), _) => living.next(),
        })
    }
}
