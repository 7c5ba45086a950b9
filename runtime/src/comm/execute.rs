//! Execution of an exchange: the data that one rank reads from its peers, and their combination.

use super::exchange::{Exchange, Move, TensorPlan};
use crate::arena::Arena;
use crate::backend::Span;
use ir::types::PartialKind;
use kernels::cpu::shape::{View, add_strided, copy_strided};

/// Locations of the tensors of one peer.
#[derive(Clone, Copy)]
pub(super) struct PeerBuffers<'a> {
    pub(super) arena: &'a Arena,
    pub(super) sources: &'a [Span],
    pub(super) results: &'a [Span],
}

/// Elements of a sum in place that are made at a time: 16 KiB, half of a first-level cache.
const CHUNK: usize = 1 << 12;

impl Exchange {
    /// Makes the results of the member `me` from the sources of all.
    ///
    /// # Safety
    /// Nobody writes a source or touches one's own results, except, where the plan is for that, the peers their own pieces
    /// in place.
    pub(super) unsafe fn pull<'a>(&self, me: usize, peer: impl Fn(usize) -> PeerBuffers<'a>, scratch: &mut Vec<f32>) {
        for (index, plan) in self.tensors.iter().enumerate() {
            let source = |place: usize| (peer(place).arena, peer(place).sources[index]);
            let result = (peer(me).arena, peer(me).results[index]);
            // SAFETY: by the caller's contract.
            unsafe {
                match plan.combine {
                    Some(kind) if plan.in_place => plan.reduce_in_place(kind, source, result, scratch),
                    _ => plan.make(source, result, scratch),
                }
            }
        }
    }

    /// Takes over the pieces of sums that the peers have made.
    ///
    /// # Safety
    /// All peers have made theirs, and nobody touches the pieces of others in one's own results.
    pub(super) unsafe fn gather<'a>(&self, me: usize, peer: impl Fn(usize) -> PeerBuffers<'a>) {
        for (index, plan) in self.tensors.iter().enumerate() {
            for piece in &plan.gather {
                let (theirs, own) = (peer(piece.peer), peer(me));
                let len = piece.sizes[0];
                // SAFETY: by the caller's contract; the slices are of different arenas.
                unsafe {
                    let reduced = theirs.arena.floats(part(theirs.results[index], piece.from, len));
                    own.arena.floats_mut(part(own.results[index], piece.to, len)).copy_from_slice(reduced);
                }
            }
        }
    }
}

impl TensorPlan {
    /// # Safety
    /// Nobody writes a source or touches the result, and no source overlaps the result.
    unsafe fn make<'a>(
        &self,
        source: impl Fn(usize) -> (&'a Arena, Span),
        (arena, result): (&'a Arena, Span),
        scratch: &mut Vec<f32>,
    ) {
        // SAFETY: by the caller's contract. A copy in place (a broadcast) has no move at the rank that others read.
        let result = unsafe { arena.floats_mut(result) };
        if self.zero {
            result.fill(0.0);
        }
        for (place, block) in self.moves.iter().enumerate() {
            let (arena, span) = source(block.peer);
            // SAFETY: by the caller's contract.
            block.apply(self.combine.filter(|_| place > 0), unsafe { arena.floats(span) }, result, scratch);
        }
    }

    /// A reduction in place, chunk by chunk. Every rank writes only its own piece, and of
    /// the others' only the same piece is read.
    ///
    /// # Safety
    /// Nobody else reads or writes the piece in the result, and nobody writes it in the sources.
    unsafe fn reduce_in_place<'a>(
        &self,
        kind: PartialKind,
        source: impl Fn(usize) -> (&'a Arena, Span),
        (arena, result): (&'a Arena, Span),
        scratch: &mut Vec<f32>,
    ) {
        let Some(piece) = self.moves.first() else { return };
        let (start, end) = (piece.from, piece.from + piece.sizes[0]);
        for at in (start..end).step_by(CHUNK) {
            let len = CHUNK.min(end - at);
            scratch.clear();
            for block in &self.moves {
                let (arena, span) = source(block.peer);
                // SAFETY: by the caller's contract; the own piece is written below.
                let theirs = unsafe { arena.floats(part(span, at, len)) };
                match (scratch.is_empty(), kind) {
                    (true, _) => scratch.extend_from_slice(theirs),
                    (false, PartialKind::Sum) => scratch.iter_mut().zip(theirs).for_each(|(a, &b)| *a += b),
                    (false, PartialKind::Max) => scratch.iter_mut().zip(theirs).for_each(|(a, &b)| *a = a.max(b)),
                }
            }
            // SAFETY: by the caller's contract, and no slice of the sources lives.
            unsafe { arena.floats_mut(part(result, at, len)) }.copy_from_slice(scratch);
        }
    }
}

/// Some elements of a tensor.
fn part(span: Span, start: usize, len: usize) -> Span {
    assert!(start + len <= span.len, "a piece is within the tensor");
    Span { offset: span.offset + 4 * start, len }
}

impl Move {
    /// Copies, adds or takes the maximum of the block; `scratch` grows as needed.
    fn apply(&self, combine: Option<PartialKind>, from: &[f32], to: &mut [f32], scratch: &mut Vec<f32>) {
        let source = View { offset: self.from, strides: &self.from_strides };
        let target = View { offset: self.to, strides: &self.to_strides };
        match combine {
            None => copy_strided(from, source, to, target, &self.sizes),
            Some(PartialKind::Sum) => add_strided(from, source, to, target, &self.sizes),
            Some(PartialKind::Max) => {
                // Blocks that are combined cover a contiguous part of the result: its strides are those of the block.
                let len = self.sizes.iter().product();
                scratch.resize(len, 0.0);
                copy_strided(from, source, scratch, View { offset: 0, strides: &self.to_strides }, &self.sizes);
                let part = &mut to[self.to..self.to + len];
                part.iter_mut().zip(&*scratch).for_each(|(a, &b)| *a = a.max(b));
            }
        }
    }
}
