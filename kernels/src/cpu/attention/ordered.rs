//! Attention in bf16 on processors with AMX: operands are written once in the order of the registers, and weights are rounded into it.
//!
//! Parts of [`PART`] queries keep their scores in the L1 cache. Scores are stored as the products give them, and scaled as they are read.

pub(super) mod backward;
pub(super) mod forward;

use super::super::gemm::ordered::{Left, Registers, right_size, space_size, words_of};
use super::super::gemm::transpose;
use super::super::matrix::Matrix;
use super::super::simd::simd;
use super::Attention;
use super::tile::{self, Block, KEYS, LANES, PART, QUERIES, Subblock};
use crate::cpu::narrow::{Floats, SharedFloats};

/// Elements of a cache line.
const LINE: usize = 16;
/// Words of a row of weights of all queries of a block.
const WEIGHTS: usize = words_of(QUERIES);

/// Cuts the scratch memory into slices of the given sizes, each of which begins a cache line.
fn carve<const N: usize>(scratch: &mut [f32], sizes: [usize; N]) -> [&mut [f32]; N] {
    let skipped = scratch.as_ptr().align_offset(4 * LINE).min(LINE);
    let (lines, mut sizes) = (sizes.map(|size| size.next_multiple_of(LINE)), sizes.into_iter());
    tile::carve(&mut scratch[skipped..], lines).map(|slice| &mut slice[..sizes.next().unwrap_or(0)])
}

/// Elements of scratch memory that [`carve`] needs.
fn total<const N: usize>(sizes: [usize; N]) -> usize {
    LINE + sizes.map(|size| size.next_multiple_of(LINE)).iter().sum::<usize>()
}

/// Rows of the queries of a block as right operands, a part after the other: the terms of a column are the elements of a row.
#[derive(Clone, Copy)]
struct Columns<'x> {
    panels: &'x [f32],
    /// Elements of a row.
    width: usize,
}

impl<'x> Columns<'x> {
    /// Writes `n` rows of `width` elements.
    fn write(
        registers: Registers,
        rows: Matrix<Floats<'_>>,
        [n, width]: [usize; 2],
        panels: &'x mut [f32],
        space: &mut [f32],
    ) -> Columns<'x> {
        registers.order_right(rows.transposed(), [width, n], panels, space);
        Columns { panels, width }
    }

    /// Writes the products of the keys of a part, given in tiles, and of its queries: a row of its lanes for each key.
    fn products(&self, registers: Registers, keys: Left<'_>, part: &Subblock, to: &mut [f32]) {
        let (m, lanes) = (part.keys.len(), part.lanes.len());
        assert!(to.len() >= m * lanes, "space for the products");
        let queries = &self.panels[right_size(self.width, part.lanes.start)..];
        let to = Matrix::rows(to.as_mut_ptr(), lanes);
        // SAFETY: the slice has the rows, and is borrowed for writing; whoever has the block has prepared the registers.
        unsafe { registers.multiply([m, lanes, self.width], keys, queries, to, 1.0, false) };
    }
}

/// Blocks of keys that stay in order while queries of their head visit them: those of d = 64 take 384 KiB.
const HELD: usize = 8;

/// The blocks of keys that are in order: by slot, their sequence and key head, and their index.
#[derive(Default)]
struct Held([Option<([usize; 2], usize)>; HELD]);

impl Held {
    /// The slot for a block of keys, and whether it is there already. The last slot serves all blocks that have no slot of their own.
    fn slot(&mut self, block: &Block<'_>, keys: &Subblock) -> (usize, bool) {
        let index = keys.keys.start / KEYS;
        let (slot, there) = (index.min(HELD - 1), Some((block.key_head(), index)));
        let is_there = self.0[slot] == there;
        self.0[slot] = there;
        (slot, is_there)
    }

    /// Slots that an attention uses.
    fn count(attention: &Attention) -> usize {
        attention.t.div_ceil(KEYS).min(HELD)
    }
}

/// A slot's part of an operand's space.
fn slot_of(space: &mut [f32], slot: usize, size: usize) -> &mut [f32] {
    &mut space[slot * size..][..size]
}

/// All keys of a block, as far as some query sees one of them or a later one, and the number of all.
fn whole_block(seen: Subblock, attention: &Attention) -> (Subblock, usize) {
    let start = seen.keys.start / KEYS * KEYS;
    (seen.with_keys_from(start), KEYS.min(attention.t - start))
}

/// A part whose keys begin with a tile of its block, and the keys of the block before them.
fn in_tiles(part: Subblock, whole: &Subblock) -> (Subblock, usize) {
    let before = (part.keys.start - whole.keys.start) / PART * PART;
    (part.with_keys_from(whole.keys.start + before), before)
}

/// Elements of panels of all queries of a block, as columns of `width` terms.
fn columns_size(width: usize) -> usize {
    right_size(width, QUERIES)
}

/// Elements of the space for words of operands of these widths.
fn largest_space(widths: [usize; 2]) -> usize {
    let [a, b] = widths.map(|width| space_size(width.max(QUERIES), width.max(PART)));
    a.max(b)
}

/// Multiplies each query's column of all parts by its factor.
fn scale_parts(columns: &mut [f32], factors: &[f32]) {
    let height = columns.len() / QUERIES;
    for (columns, factors) in columns.chunks_mut(height * PART).zip(factors.chunks(PART)) {
        scale_columns(&mut columns[..height * factors.len()], factors);
    }
}

/// Writes the columns of all parts as rows of `width` elements of this block's queries. `space` has rows of whole vectors for a part.
///
/// # Safety
/// The rows must be in `to`, and be written by no one else.
unsafe fn write_rows(block: &Block<'_>, columns: &[f32], width: usize, to: SharedFloats, space: &mut [f32]) {
    let stride = width.next_multiple_of(LINE);
    for first in (0..block.queries.len()).step_by(PART) {
        let lanes = PART.min(block.lanes - first);
        transpose(Matrix::rows(&columns[width * first..], lanes), [width, lanes], space, stride);
        for (i, row) in (first..block.queries.len().min(first + lanes)).zip(space.chunks_exact(stride)) {
            // SAFETY: as the caller promises.
            unsafe { to.write(block.row(i) * width, &row[..width]) };
        }
    }
}

simd! {
    /// Multiplies each column by its factor.
    fn scale_columns(x: &mut [f32], factors: &[f32]) {
        let (factors, _) = factors.as_chunks::<LANES>();
        for row in x.as_chunks_mut::<LANES>().0.chunks_exact_mut(factors.len()) {
            for (x, factors) in row.iter_mut().zip(factors) {
                for (x, &factor) in x.iter_mut().zip(factors) {
                    *x *= factor;
                }
            }
        }
    }
}
