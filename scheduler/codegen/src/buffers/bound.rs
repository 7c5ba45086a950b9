//! Lower bound on the arena size: the maximum, over time, of the live bytes.

use super::frame::Piece;
use super::instructions::FrameLayouts;
use super::needs::{BufferUse, Needs};
use ir::program::{Class, Instr};

/// Bytes of a row that are there at once.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct LiveBytes {
    pub(super) stage_io: u64,
    pub(super) activations: u64,
    pub(super) scratch: u64,
}

impl LiveBytes {
    /// Registers, slots and scratch together.
    pub(super) fn bytes(&self) -> u64 {
        self.stage_io + self.activations + self.scratch
    }

    /// When a body needs most of what it makes.
    pub(super) fn within(rows: &[Piece], slots: &[Piece], scratch: &[Piece]) -> LiveBytes {
        let begin = rows.iter().chain(slots).chain(scratch).map(|piece| piece.from);
        let live_bytes = begin.map(|time| LiveBytes {
            stage_io: bytes_at(rows, time),
            activations: bytes_at(slots, time),
            scratch: bytes_at(scratch, time),
        });
        live_bytes.max_by_key(LiveBytes::bytes).unwrap_or_default()
    }

    fn of(&mut self, usage: BufferUse) -> &mut u64 {
        match usage {
            BufferUse::StageIo => &mut self.stage_io,
            BufferUse::Activations => &mut self.activations,
            BufferUse::Scratch => &mut self.scratch,
        }
    }

    fn plus(self, other: LiveBytes) -> LiveBytes {
        LiveBytes {
            stage_io: self.stage_io + other.stage_io,
            activations: self.activations + other.activations,
            scratch: self.scratch + other.scratch,
        }
    }
}

/// Bytes of the pieces that are in use at a time.
fn bytes_at(pieces: &[Piece], time: usize) -> u64 {
    pieces.iter().filter(|piece| piece.from <= time && time < piece.to).map(|piece| piece.size).sum()
}

/// Live bytes at each instruction of a row; for a body, at its own peak.
pub(super) fn live_bytes(needs: &Needs, layouts: &FrameLayouts, class: &Class) -> Vec<LiveBytes> {
    let mut ends: Vec<Vec<usize>> = vec![Vec::new(); class.instrs.len() + 1];
    needs.parts.iter().enumerate().for_each(|(part, data)| ends[data.end].push(part));
    let mut now = LiveBytes::default();
    let mut blocks = needs.blocks.iter().peekable();
    let mut live_bytes = Vec::new();
    for (at, instr) in class.instrs.iter().enumerate() {
        for part in ends[at].iter().map(|&part| &needs.parts[part]) {
            *now.of(needs.blocks[part.block].usage) -= part.size;
        }
        let mut within = LiveBytes::default();
        while let Some(block) = blocks.next_if(|block| block.start == at) {
            let bytes = needs.parts[block.parts.clone()].iter().map(|part| part.size).sum::<u64>();
            *(if block.within { &mut within } else { &mut now }).of(block.usage) += bytes;
        }
        live_bytes.push(match instr {
            Instr::Run { token: None, body, .. } => now.plus(layouts[*body].fullest),
            _ => now,
        });
        now = now.plus(within);
    }
    live_bytes
}
