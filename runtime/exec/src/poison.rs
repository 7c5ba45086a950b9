//! Poison: numbers that are none, wherever nothing lives from step to step. Who reads what a step has not written gets them.

use super::rank::RankState;
use device::backend::Span;
use ir::arena::ALIGNMENT;
use ir::types::DType;

/// The bytes of numbers that are none in every format, as no kernel makes them.
const POISON: [u8; 4] = [0xff, 0x7f, 0xff, 0x7f];

/// Bytes that are written or read at a time.
const PIECE: usize = 1 << 20;

impl RankState<'_> {
    /// Fills what is not held.
    pub(super) fn poison(&mut self) {
        let mut held: Vec<Span> = self.slots().iter().filter(|slot| !slot.host).map(|slot| slot.span).collect();
        held.sort_by_key(|span| span.offset);
        let mut end = 0;
        for span in held {
            self.poison_between(end, span.offset);
            end = span.offset + span.bytes();
        }
        self.poison_between(end, self.arena_bytes());
    }

    fn poison_between(&mut self, start: usize, end: usize) {
        let pattern: Vec<u8> = POISON.into_iter().cycle().skip(start % 4).take(PIECE.min(end - start)).collect();
        for at in (start..end).step_by(PIECE) {
            let len = PIECE.min(end - at);
            self.memory().write(bytes(at, len), &pattern[..len]);
        }
    }

    /// Bytes up to the last that was written since, in whole places.
    pub(super) fn used(&mut self) -> u64 {
        let (size, mut piece) = (self.arena_bytes(), vec![0; PIECE]);
        for at in (0..size).step_by(PIECE).rev() {
            let piece = &mut piece[..PIECE.min(size - at)];
            self.memory().read(bytes(at, piece.len()), piece);
            let words = piece.as_chunks::<4>().0;
            if let Some(last) = words.iter().rposition(|word| *word != POISON) {
                return ((at + 4 * (last + 1)) as u64).next_multiple_of(ALIGNMENT);
            }
        }
        0
    }
}

/// A place of bytes.
pub(super) fn bytes(offset: usize, len: usize) -> Span {
    Span::new(DType::F8E5M2, offset, len)
}
