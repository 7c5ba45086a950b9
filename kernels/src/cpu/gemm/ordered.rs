//! Operands of bf16 in the order of the registers of AMX, for callers that multiply them more than once, or compute them.
//!
//! A left operand has its rows in tiles (`units`), or as contiguous words. A right one has panels of [`PANEL`] columns: the words of
//! a row of each are neighbours. The last panel has whole registers of columns.

use super::level::Level;
use super::pack::Unpacked;
use super::tile::{Tile, compute_buffered};
use super::units::{ROWS, UNIT};
use super::{Matrix, blocks_of};
use crate::cpu::narrow::Floats;

/// Columns of a panel.
pub(crate) const PANEL: usize = 2 * UNIT;
/// Terms whose words fill the rows of a register: operands are filled up to whole ones.
pub(crate) const TERMS: usize = 2 * UNIT;

/// Orders and multiplies operands, on processors that have the registers.
#[derive(Clone, Copy)]
pub(crate) struct Registers(&'static Level);

/// Rows of a left operand.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    words: &'a [f32],
    /// The distance of rows, and of units of a row, in words.
    strides: [usize; 2],
    /// The distance of tiles, in words.
    tile: usize,
}

impl<'a> Left<'a> {
    /// The words that [`Registers::order_left`] wrote, for rows of `k` terms.
    pub(crate) fn tiles(words: &'a [f32], k: usize) -> Left<'a> {
        Left { words, strides: [UNIT, ROWS * UNIT], tile: ROWS * words_of(k) }
    }

    /// Rows of `stride` contiguous words.
    pub(crate) fn rows(words: &'a [f32], stride: usize) -> Left<'a> {
        Left { words, strides: [stride, UNIT], tile: ROWS * stride }
    }

    /// Leaves out rows that fill tiles.
    pub(crate) fn skip_rows(self, rows: usize) -> Left<'a> {
        debug_assert!(rows.is_multiple_of(ROWS));
        Left { words: &self.words[rows / ROWS * self.tile..], ..self }
    }

    /// Leaves out terms that fill units.
    pub(crate) fn skip_terms(self, terms: usize) -> Left<'a> {
        debug_assert!(terms.is_multiple_of(TERMS));
        Left { words: &self.words[terms / TERMS * self.strides[1]..], ..self }
    }

    /// Words from the first to the last one that is read of `m` rows of `k` terms.
    fn span(&self, m: usize, k: usize) -> usize {
        (m.div_ceil(ROWS) - 1) * self.tile
            + (ROWS - 1) * self.strides[0]
            + (k.div_ceil(TERMS) - 1) * self.strides[1]
            + UNIT
    }
}

impl Registers {
    /// The registers of this processor, if it has them.
    pub(crate) fn find() -> Option<Registers> {
        Level::of_pairs().filter(|level| level.unit == UNIT).map(Registers)
    }

    /// Gives the registers of this thread their shapes, before [`Registers::multiply`].
    pub(crate) fn prepare(self) {
        (self.0.prepare)();
    }

    /// Writes `m` rows of `k` terms of bf16 in tiles of `to`.
    ///
    /// # Panics
    /// If the rows are not in their slice, or `to` is smaller than [`left_size`].
    pub(crate) fn order_left(self, a: Matrix<Floats<'_>>, [m, k]: [usize; 2], to: &mut [f32]) {
        let a = a.pointer([m, k]);
        assert!(a.are_bf16() && to.len() >= left_size(m, k), "elements of bf16, and space for their tiles");
        // SAFETY: as has been checked; the processor has the instructions.
        unsafe { (self.0.write_units)(a, [m, k], to.as_mut_ptr(), words_of(k) / UNIT) };
    }

    /// Writes `n` columns of `k` terms of bf16 in panels of `to`. `space` has the words of a panel, or of a row.
    ///
    /// # Panics
    /// If the columns are not in their slice, `to` is smaller than [`right_size`] or `space` than [`space_size`].
    pub(crate) fn order_right(self, b: Matrix<Floats<'_>>, [k, n]: [usize; 2], to: &mut [f32], space: &mut [f32]) {
        let from = b.pointer([k, n]);
        assert!(from.are_bf16() && to.len() >= right_size(k, n), "elements of bf16, and space for their panels");
        assert!(space.len() >= space_size(k, n), "space for words");
        let from = Unpacked { from, k, columns: n, terms: 2, words: words_of(k), space: space.as_mut_ptr() };
        // SAFETY: as has been checked; the processor has the instructions.
        unsafe { (self.0.pack)(&from, to.as_mut_ptr(), PANEL) };
    }

    /// Rounds rows of `n` numbers, whole registers, to the panel of a right operand whose terms are the rows.
    ///
    /// # Panics
    /// If the panel is wider than [`PANEL`], or not that of the rows.
    pub(crate) fn round_right(self, rows: &[f32], n: usize, to: &mut [f32]) {
        let k = rows.len() / n;
        assert!(n <= PANEL && n.is_multiple_of(UNIT) && to.len() >= right_size(k, n), "a panel of whole registers");
        // SAFETY: as has been checked; the processor has the instructions.
        unsafe { (self.0.round_pairs)(rows.as_ptr(), [k, n], to.as_mut_ptr(), words_of(k)) };
    }

    /// Rounds rows of `k` numbers, whole registers, to terms from `first` on of rows of `stride` contiguous words.
    ///
    /// # Panics
    /// If the terms begin within a word, or are not in the rows.
    pub(crate) fn round_left(self, rows: &[f32], k: usize, to: &mut [f32], [first, stride]: [usize; 2]) {
        let m = rows.len() / k;
        assert!(
            k.is_multiple_of(UNIT) && first.is_multiple_of(2) && (first + k) / 2 <= stride,
            "whole registers of words"
        );
        assert!(to.len() >= m * stride, "rows of words");
        // SAFETY: as has been checked; the processor has the instructions.
        unsafe { (self.0.round_rows)(rows.as_ptr(), [m, k], to[first / 2..].as_mut_ptr(), stride) };
    }

    /// `out = scale a b`, or that added, for `m` rows of `k` terms and the panels of `n` columns.
    ///
    /// # Panics
    /// If an operand is too small.
    ///
    /// # Safety
    /// The elements of `out` must be valid for writes (and reads, to add) that no one else makes meanwhile, its rows be contiguous, and
    /// [`Registers::prepare`] have been called on this thread.
    pub(crate) unsafe fn multiply(
        self,
        [m, n, k]: [usize; 3],
        a: Left<'_>,
        b: &[f32],
        out: Matrix<*mut f32>,
        scale: f32,
        accumulate: bool,
    ) {
        if m == 0 || n == 0 || k == 0 {
            return;
        }
        assert!(a.words.len() >= a.span(m, k) && b.len() >= right_size(k, n), "operands of these sizes");
        for (columns, rows) in blocks_of(n, PANEL).flat_map(|n| blocks_of(m, ROWS).map(move |m| (n.clone(), m))) {
            let width = columns.len().next_multiple_of(UNIT);
            let out = out.at([rows.start, columns.start]);
            let tile = Tile {
                words: words_of(k),
                a: a.words[rows.start / ROWS * a.tile..].as_ptr(),
                a_strides: [a.strides[0], a.strides[1] / UNIT],
                b: b[columns.start * words_of(k)..].as_ptr(),
                b_stride: width,
                out: out.data,
                out_stride: out.strides[0],
                scale,
                accumulate,
            };
            let compute = self.0.tiles[rows.len() - 1][width / UNIT - 1];
            // SAFETY: as has been checked, and as the caller promises.
            unsafe {
                if columns.len() == width {
                    compute(&tile);
                } else {
                    compute_buffered(compute, tile, [rows.len(), columns.len(), width], out);
                }
            }
        }
    }
}

/// Words of `k` terms, filled up.
pub(crate) const fn words_of(k: usize) -> usize {
    k.next_multiple_of(TERMS) / 2
}

/// Elements of a left operand of `m` rows of `k` terms in tiles.
pub(crate) const fn left_size(m: usize, k: usize) -> usize {
    m.next_multiple_of(ROWS) * words_of(k)
}

/// Elements of a right operand of `n` columns of `k` terms.
pub(crate) const fn right_size(k: usize, n: usize) -> usize {
    words_of(k) * n.next_multiple_of(UNIT)
}

/// Elements of the space for the words of a panel, or of a row, while a right operand is ordered.
pub(crate) const fn space_size(k: usize, n: usize) -> usize {
    let panel = words_of(k) * PANEL;
    if panel > n { panel } else { n }
}
