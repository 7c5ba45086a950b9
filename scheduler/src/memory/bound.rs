//! The moment at which most is there. No arena can be smaller than that.

use super::frame::Piece;
use super::needs::{Needs, Use};
use super::row::Layouts;
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
    pub(super) fn row_bytes(&self) -> u64 {
        self.boundary + self.kept + self.scratch
    }

    fn of(&mut self, usage: Use) -> &mut u64 {
        match usage {
            Use::Boundary => &mut self.boundary,
            Use::Kept => &mut self.kept,
            Use::Scratch => &mut self.scratch,
        }
    }

    /// The fullest moment of a row: at an instruction of it, and there at an instruction of the body that it runs.
    pub(super) fn fullest(needs: &Needs, layouts: &Layouts, class: &Class) -> Moment {
        let mut ends: Vec<Vec<usize>> = vec![Vec::new(); class.instrs.len() + 1];
        needs.parts.iter().enumerate().for_each(|(part, data)| ends[data.end].push(part));
        let (mut now, mut most) = (Moment::default(), Moment::default());
        let mut blocks = needs.blocks.iter().peekable();
        for (at, instr) in class.instrs.iter().enumerate() {
            for part in ends[at].iter().map(|&part| &needs.parts[part]) {
                *now.of(needs.blocks[part.block].usage) -= part.size;
            }
            let mut within = Moment::default();
            while let Some(block) = blocks.next_if(|block| block.start == at) {
                let bytes = needs.parts[block.parts.clone()].iter().map(|part| part.size).sum::<u64>();
                *(if block.within { &mut within } else { &mut now }).of(block.usage) += bytes;
            }
            let inner = match instr {
                Instr::Run { token: None, body, .. } => {
                    let layout = &layouts[*body];
                    let (_, time) = layout.peak();
                    let used = |pieces: &[Piece]| {
                        pieces.iter().filter(|piece| piece.is_used(time)).map(|piece| piece.size).sum::<u64>()
                    };
                    Moment { boundary: used(&layout.rows), kept: used(&layout.slot), scratch: used(&layout.scratch) }
                }
                _ => Moment::default(),
            };
            let total = now.plus(inner);
            if total.row_bytes() > most.row_bytes() {
                most = total;
            }
            now = now.plus(within);
        }
        most
    }

    fn plus(self, other: Moment) -> Moment {
        Moment {
            boundary: self.boundary + other.boundary,
            kept: self.kept + other.kept,
            scratch: self.scratch + other.scratch,
        }
    }
}
