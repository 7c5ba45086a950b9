//! Memory needs of an instruction stream: blocks of bytes, each of parts that live until their last holder releases them.

use super::interval::Interval;
use std::ops::Range;

/// Purpose of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BufferUse {
    /// A register.
    StageIo,
    /// The slot of a bundle.
    Activations,
    /// The scratch of an async run.
    Scratch,
}

/// Bytes that are placed as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Buffer {
    pub(super) usage: BufferUse,
    /// The instruction from which on it is there.
    pub(super) start: usize,
    /// It is made in the course of a run that the row waits for, not at once.
    pub(super) within: bool,
    pub(super) size: u64,
    /// Its parts, among all of the row.
    pub(super) parts: Range<usize>,
}

/// A part of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BufferPart {
    pub(super) block: usize,
    pub(super) offset: u64,
    pub(super) size: u64,
    /// The instruction at which it is gone.
    pub(super) end: usize,
    holders: u32,
}

/// One of the places that an instruction states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum At {
    /// That of a part.
    BufferPart(usize),
    /// That of a block.
    Buffer(usize),
    /// That of an interval of host memory.
    Host(usize),
    /// That of the scratch of a run that the row waits for.
    Scratch,
    /// No tensor is there.
    Nowhere,
}

/// Memory needs of a row.
#[derive(Default, Debug)]
pub(super) struct Needs {
    pub(super) blocks: Vec<Buffer>,
    pub(super) parts: Vec<BufferPart>,
    /// The bundles in host memory.
    pub(super) host: Vec<Interval>,
    /// Per instruction, the places that it states.
    pub(super) at: Vec<Vec<At>>,
    /// The first instruction that updates parameters; where there is none, the number of all.
    pub(super) update: usize,
}

impl Needs {
    /// A block of parts of these offsets and sizes, that nobody holds yet.
    pub(super) fn block(
        &mut self,
        usage: BufferUse,
        start: usize,
        within: bool,
        pieces: &[(u64, u64)],
    ) -> Range<usize> {
        let (block, first) = (self.blocks.len(), self.parts.len());
        for &(offset, size) in pieces {
            self.parts.push(BufferPart { block, offset, size, end: usize::MAX, holders: 0 });
        }
        let size = pieces.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
        let parts = first..self.parts.len();
        self.blocks.push(Buffer { usage, start, within, size, parts: parts.clone() });
        parts
    }

    /// The instruction at which the last part of a block is gone.
    pub(super) fn end(&self, block: &Buffer) -> usize {
        self.parts[block.parts.clone()].iter().map(|part| part.end).max().unwrap_or(block.start)
    }

    /// True if a block is made before the first update and lives on: it is a sum of gradients.
    pub(super) fn waits_for_update(&self, block: &Buffer) -> bool {
        block.start < self.update && self.update < self.end(block)
    }

    pub(super) fn hold(&mut self, part: usize) {
        self.parts[part].holders += 1;
    }

    /// Lets go of a part; with its last holder it is gone.
    pub(super) fn release(&mut self, part: usize, now: usize) {
        let part = &mut self.parts[part];
        part.holders -= 1;
        if part.holders == 0 {
            part.end = now;
        }
    }

    pub(super) fn is_shared(&self, part: usize) -> bool {
        self.parts[part].holders > 1
    }
}
