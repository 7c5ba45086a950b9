//! Lower bound on the arena size: the maximum, over time, of the live bytes.

use super::frame::Piece;
use super::instructions::FrameLayouts;
use super::needs::{BufferUse, Needs};
use ir::program::{Class, Instr};

/// Bytes of a row that are there at once.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Moment {
    pub(super) boundary: u64,
    pub(super) kept: u64,
    pub(super) scratch: u64,
}

impl Moment {
    /// Registers, slots and scratch together.
    pub(super) fn bytes(&self) -> u64 {
        self.boundary + self.kept + self.scratch
    }

    /// When a body needs most of what it makes.
    pub(super) fn within(rows: &[Piece], slot: &[Piece], scratch: &[Piece]) -> Moment {
        let at = |time: usize| {
            let used = |pieces: &[Piece]| {
                let used = pieces.iter().filter(|piece| piece.from <= time && time < piece.to);
                used.map(|piece| piece.size).sum::<u64>()
            };
            Moment { boundary: used(rows), kept: used(slot), scratch: used(scratch) }
        };
        let begin = rows.iter().chain(slot).chain(scratch).map(|piece| piece.from);
        begin.map(at).max_by_key(Moment::bytes).unwrap_or_default()
    }

    fn of(&mut self, usage: BufferUse) -> &mut u64 {
        match usage {
            BufferUse::Boundary => &mut self.boundary,
            BufferUse::Kept => &mut self.kept,
            BufferUse::Scratch => &mut self.scratch,
        }
    }

    fn plus(self, other: Moment) -> Moment {
        Moment {
            boundary: self.boundary + other.boundary,
            kept: self.kept + other.kept,
            scratch: self.scratch + other.scratch,
        }
    }
}

/// What is there at each instruction of a row; while a body runs, when it needs most.
pub(super) fn moments(needs: &Needs, layouts: &FrameLayouts, class: &Class) -> Vec<Moment> {
    let mut ends: Vec<Vec<usize>> = vec![Vec::new(); class.instrs.len() + 1];
    needs.parts.iter().enumerate().for_each(|(part, data)| ends[data.end].push(part));
    let mut now = Moment::default();
    let mut blocks = needs.blocks.iter().peekable();
    let mut moments = Vec::new();
    for (at, instr) in class.instrs.iter().enumerate() {
        for part in ends[at].iter().map(|&part| &needs.parts[part]) {
            *now.of(needs.blocks[part.block].usage) -= part.size;
        }
        let mut within = Moment::default();
        while let Some(block) = blocks.next_if(|block| block.start == at) {
            let bytes = needs.parts[block.parts.clone()].iter().map(|part| part.size).sum::<u64>();
            *(if block.within { &mut within } else { &mut now }).of(block.usage) += bytes;
        }
        moments.push(match instr {
            Instr::Run { token: None, body, .. } => now.plus(layouts[*body].fullest),
            _ => now,
        });
        now = now.plus(within);
    }
    moments
}
