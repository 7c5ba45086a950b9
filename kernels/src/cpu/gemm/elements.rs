//! Operands in memory, of any format, and parts of them as the words that a micro-kernel reads.

use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::super::matrix::Matrix;
use super::super::nd::span;
use crate::cpu::narrow::{Floats, Narrow, widen_rows};
use crate::cpu::prefetch::prefetch;
use crate::cpu::simd::simd;

/// Words that are joined at once: tiles of pairs have at most 14 rows.
const GROUP: usize = 8;
/// Rows between those that are joined and those that are asked for, which come from the last-level cache meanwhile.
const AHEAD: usize = 32;

/// Start of the elements of an operand, unchecked.
#[derive(Clone, Copy)]
pub(super) enum Elements {
    /// Elements of f32.
    Wide(*const f32),
    /// Elements of a narrower format.
    Narrow(Narrow, *const u8),
}

impl Elements {
    fn skip(self, n: usize) -> Elements {
        match self {
            Elements::Wide(from) => Elements::Wide(from.wrapping_add(n)),
            Elements::Narrow(format, from) => Elements::Narrow(format, from.wrapping_add(n * format.bytes())),
        }
    }
}

/// Space for words.
#[derive(Clone, Copy)]
pub(super) struct Space {
    pub(super) at: *mut f32,
    /// They have been written there.
    pub(super) is_filled: bool,
}

impl<'a, S: Into<Floats<'a>>> Matrix<S> {
    /// The same, unchecked from here on.
    ///
    /// # Panics
    /// If a matrix of this size reaches beyond its slice.
    pub(super) fn pointer(self, size: [usize; 2]) -> Matrix<Elements> {
        let floats = self.data.into();
        assert!(span(&size, &self.strides) <= floats.len(), "the matrix is in its slice");
        let data = match floats {
            Floats::Wide(x) => Elements::Wide(x.as_ptr()),
            Floats::Narrow(format, bytes) => Elements::Narrow(format, bytes.as_ptr()),
        };
        Matrix { data, strides: self.strides }
    }
}

impl Matrix<Elements> {
    /// Asks for the first `count` elements of the row that is [`AHEAD`] of this one, whose elements are contiguous.
    pub(super) fn prefetch_row(self, count: usize) {
        match self.at([AHEAD, 0]).data {
            Elements::Wide(first) => prefetch(first.cast(), 4 * count),
            Elements::Narrow(format, first) => prefetch(first, format.bytes() * count),
        }
    }

    /// The matrix that starts at an element of this one.
    pub(super) fn at(self, [i, j]: [usize; 2]) -> Matrix<Elements> {
        Matrix { data: self.data.skip(i * self.strides[0] + j * self.strides[1]), strides: self.strides }
    }

    /// The matrix where it is, if that is f32.
    pub(super) fn in_place(self) -> Option<Matrix<*const f32>> {
        match self.data {
            Elements::Wide(data) => Some(Matrix { data, strides: self.strides }),
            Elements::Narrow(..) => None,
        }
    }

    /// The words of columns of `k` terms where they are, if each is there as a micro-kernel reads it: a term of f32 or, with 2
    /// `terms`, a pair of contiguous ones.
    pub(super) fn words_in_place(self, k: usize, terms: usize) -> Option<Matrix<*const f32>> {
        let [down, across] = self.strides;
        match self.data {
            Elements::Wide(_) if terms == 1 => self.in_place(),
            Elements::Narrow(Narrow::Bf16, first) if terms == 2 => {
                let are_pairs = down == 1 && across.is_multiple_of(2) && k.is_multiple_of(2);
                let data = first.cast::<f32>();
                (are_pairs && data.is_aligned() && cfg!(target_endian = "little"))
                    .then_some(Matrix { data, strides: [1, across / 2] })
            }
            _ => None,
        }
    }

    /// True if the elements are bf16.
    pub(super) fn are_bf16(self) -> bool {
        matches!(self.data, Elements::Narrow(Narrow::Bf16, _))
    }

    /// The words of the first columns of `k` terms. A word is one term in f32 or, with 2 `terms`, two of bf16 that follow each
    /// other in a column; a last one that is alone is followed by zero. They are where the elements are, or written into `space`
    /// unless that is filled with them.
    ///
    /// # Safety
    /// The elements may be read, and as many of `space` be written as there are words. With 2 terms, the elements are bf16.
    #[inline(always)]
    pub(super) unsafe fn words(self, size: [usize; 2], terms: usize, space: Space) -> Matrix<*const f32> {
        if let Some(words) = self.words_in_place(size[0], terms) {
            return words;
        }
        match self.data {
            // SAFETY: as the caller promises.
            Elements::Narrow(Narrow::Bf16, first) if terms == 2 => unsafe { pairs(first, self.strides, size, space) },
            // SAFETY: as the caller promises.
            _ => unsafe { self.wide(size, space) },
        }
    }

    /// Writes the words of tiles of columns, if they are pairs of contiguous rows: those of each tile as [`Matrix::words`] would, after
    /// those of all columns before it. True if it did.
    ///
    /// # Safety
    /// As for [`Matrix::words`].
    pub(super) unsafe fn write_pairs(self, k: usize, terms: usize, tiles: &[Range<usize>], space: *mut f32) -> bool {
        let (Elements::Narrow(Narrow::Bf16, first), 2, [down, 1]) = (self.data, terms, self.strides) else {
            return false;
        };
        let [Some(left), Some(right)] = [tiles.first(), tiles.last()].map(|tile| tile.cloned()) else { return false };
        if down == 1 {
            return false;
        }
        let (first, columns, words) = (first.wrapping_add(2 * left.start), right.end - left.start, k.div_ceil(2));
        // SAFETY: as the caller promises; every pattern of bits is a number of either type.
        let (from, to) = unsafe {
            let from = from_raw_parts(first.cast::<[u8; 2]>(), span(&[k, columns], &[down, 1]));
            (from, from_raw_parts_mut(space.cast::<u32>().add(words * left.start), words * columns))
        };
        for q in 0..words {
            let [first, second] = pair_of_rows(from, down, [q, k], columns);
            join_tiles([first, second], tiles, [q, words], to);
        }
        true
    }

    /// The first rows and columns in f32: where they are, or widened into `space`.
    ///
    /// # Safety
    /// The elements may be read, and as many of `space` be written.
    #[inline(always)]
    unsafe fn wide(self, size: [usize; 2], space: Space) -> Matrix<*const f32> {
        match self.data {
            Elements::Wide(data) => Matrix { data, strides: self.strides },
            // SAFETY: as the caller promises.
            Elements::Narrow(format, first) => unsafe { widened(format, first, self.strides, size, space) },
        }
    }
}

/// The first rows and columns of a narrow matrix, widened into `space` in the order in which they are contiguous, if any.
///
/// # Safety
/// As for [`Matrix::wide`].
unsafe fn widened(
    format: Narrow,
    first: *const u8,
    [down, across]: [usize; 2],
    [rows, columns]: [usize; 2],
    space: Space,
) -> Matrix<*const f32> {
    // SAFETY: as the caller promises.
    unsafe {
        let is_flat = if columns == 1 { rows > 1 } else { across != 1 };
        if down == 1 && is_flat {
            return widened(format, first, [across, 1], [columns, rows], space).transposed();
        }
        let words = Matrix::rows(space.at.cast_const(), columns);
        if space.is_filled {
            return words;
        }
        let from = from_raw_parts(first, span(&[rows, columns], &[down, across]) * format.bytes());
        let to = from_raw_parts_mut(space.at, rows * columns);
        if across == 1 {
            widen_rows(format, from, [columns, down], to);
        } else {
            for (i, to) in to.chunks_exact_mut(columns).enumerate() {
                widen_rows(format, &from[i * down * format.bytes()..], [1, across], to);
            }
        }
        words
    }
}

/// The pairs of the terms in each column, written into `space` in the order in which the terms are contiguous, if any.
///
/// # Safety
/// As for [`Matrix::words`].
unsafe fn pairs(
    first: *const u8,
    [down, across]: [usize; 2],
    [k, columns]: [usize; 2],
    space: Space,
) -> Matrix<*const f32> {
    let (words, at) = (k.div_ceil(2), space.at.cast_const());
    let found = if down == 1 { Matrix::rows(at, words).transposed() } else { Matrix::rows(at, columns) };
    if space.is_filled {
        return found;
    }
    // SAFETY: as the caller promises; every pattern of bits is a number of either type.
    let (from, to) = unsafe {
        let from = from_raw_parts(first.cast::<[u8; 2]>(), span(&[k, columns], &[down, across]));
        (from, from_raw_parts_mut(space.at.cast::<u32>(), words * columns))
    };
    if down == 1 {
        for (j, to) in to.chunks_exact_mut(words).enumerate() {
            join_neighbours(&from[j * across..][..k], to);
        }
        return found;
    }
    for (q, to) in to.chunks_exact_mut(columns).enumerate() {
        let [first, second] = pair_of_rows(from, down, [q, k], columns);
        join_rows(first, second, across, to);
    }
    found
}

/// The two rows of the words of an index, the second one empty if there is none. Those [`AHEAD`] are asked for.
fn pair_of_rows(from: &[[u8; 2]], down: usize, [q, k]: [usize; 2], columns: usize) -> [&[[u8; 2]]; 2] {
    let row = |q: usize| if q < k { &from[q * down..] } else { &[] };
    for ahead in [2 * q + AHEAD, 2 * q + 1 + AHEAD] {
        row(ahead).first().inspect(|first| prefetch(first.as_ptr(), 2 * columns));
    }
    [row(2 * q), row(2 * q + 1)]
}

/// A word of two terms, the first one in its lower half.
#[inline(always)]
pub(super) fn word(first: [u8; 2], second: [u8; 2]) -> u32 {
    u32::from(u16::from_le_bytes(first)) | u32::from(u16::from_le_bytes(second)) << 16
}

/// Words of one term of each row. The second row is empty, or as long.
#[inline(always)]
pub(super) fn join_contiguous(first: &[[u8; 2]], second: &[[u8; 2]], to: &mut [u32]) {
    for (to, (&first, &second)) in to.iter_mut().zip(first.iter().zip(second)) {
        *to = word(first, second);
    }
}

simd! {
    /// Writes a row of the words of each tile. The second row is empty, or as long.
    fn join_tiles(rows: [&[[u8; 2]]; 2], tiles: &[Range<usize>], place: [usize; 2], to: &mut [u32]) {
        let ([first, second], [q, words]) = (rows, place);
        let start = tiles.first().map_or(0, |tile| tile.start);
        for tile in tiles {
            let (at, width) = (tile.start - start, tile.len());
            let to = &mut to[words * at + q * width..][..width];
            if second.is_empty() || width < GROUP {
                for (j, to) in to.iter_mut().enumerate() {
                    *to = word(first[at + j], second.get(at + j).copied().unwrap_or_default());
                }
                continue;
            }
            // The last group may begin before the end of the one before.
            for j in (0..width - GROUP).step_by(GROUP).chain([width - GROUP]) {
                join_contiguous(&first[at + j..][..GROUP], &second[at + j..][..GROUP], &mut to[j..j + GROUP]);
            }
        }
    }

    /// Words of neighbours.
    fn join_neighbours(terms: &[[u8; 2]], to: &mut [u32]) {
        let (pairs, alone) = terms.as_chunks::<2>();
        for (to, &[first, second]) in to.iter_mut().zip(pairs) {
            *to = word(first, second);
        }
        if let ([first], Some(to)) = (alone, to.last_mut()) {
            *to = word(*first, [0; 2]);
        }
    }

    /// Words of one term of each row, whose elements are `stride` apart. The second row is empty, or as long.
    fn join_rows(first: &[[u8; 2]], second: &[[u8; 2]], stride: usize, to: &mut [u32]) {
        match (stride, second) {
            (_, []) => (0..to.len()).for_each(#[inline(always)] |j| to[j] = word(first[j * stride], [0; 2])),
            (1, _) => join_contiguous(first, second, to),
            _ => (0..to.len()).for_each(#[inline(always)] |j| to[j] = word(first[j * stride], second[j * stride])),
        }
    }
}
