//! Operands in memory, of any format, and parts of them as the words that a micro-kernel reads.

use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::super::matrix::Matrix;
use super::super::nd::span;
use crate::cpu::narrow::{Floats, Narrow, widen_rows};
use crate::cpu::simd::simd;

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
    /// other in a column; a last one that is alone is followed by zero. They are where the elements are, or written into `space`.
    ///
    /// # Safety
    /// The elements may be read, and as many of `space` be written as there are words. With 2 terms, the elements are bf16.
    #[inline(always)]
    pub(super) unsafe fn words(self, size: [usize; 2], terms: usize, space: *mut f32) -> Matrix<*const f32> {
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

    /// The first rows and columns in f32: where they are, or widened into `space`.
    ///
    /// # Safety
    /// The elements may be read, and as many of `space` be written.
    #[inline(always)]
    unsafe fn wide(self, size: [usize; 2], space: *mut f32) -> Matrix<*const f32> {
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
    space: *mut f32,
) -> Matrix<*const f32> {
    // SAFETY: as the caller promises.
    unsafe {
        let is_flat = if columns == 1 { rows > 1 } else { across != 1 };
        if down == 1 && is_flat {
            return widened(format, first, [across, 1], [columns, rows], space).transposed();
        }
        let from = from_raw_parts(first, span(&[rows, columns], &[down, across]) * format.bytes());
        let to = from_raw_parts_mut(space, rows * columns);
        if across == 1 {
            widen_rows(format, from, [columns, down], to);
        } else {
            for (i, to) in to.chunks_exact_mut(columns).enumerate() {
                widen_rows(format, &from[i * down * format.bytes()..], [1, across], to);
            }
        }
    }
    Matrix::rows(space, columns)
}

/// The pairs of the terms in each column, written into `space` in the order in which the terms are contiguous, if any.
///
/// # Safety
/// As for [`Matrix::words`].
unsafe fn pairs(
    first: *const u8,
    [down, across]: [usize; 2],
    [k, columns]: [usize; 2],
    space: *mut f32,
) -> Matrix<*const f32> {
    let words = k.div_ceil(2);
    // SAFETY: as the caller promises; every pattern of bits is a number of either type.
    let (from, to) = unsafe {
        let from = from_raw_parts(first.cast::<[u8; 2]>(), span(&[k, columns], &[down, across]));
        (from, from_raw_parts_mut(space.cast::<u32>(), words * columns))
    };
    if down == 1 {
        for (j, to) in to.chunks_exact_mut(words).enumerate() {
            join_neighbours(&from[j * across..][..k], to);
        }
        return Matrix::rows(space.cast_const(), words).transposed();
    }
    let row = |q: usize| if q < k { &from[q * down..] } else { &[] };
    for (q, to) in to.chunks_exact_mut(columns).enumerate() {
        join_rows(row(2 * q), row(2 * q + 1), across, to);
    }
    Matrix::rows(space, columns)
}

/// A word of two terms, the first one in its lower half.
#[inline(always)]
fn word(first: [u8; 2], second: [u8; 2]) -> u32 {
    u32::from(u16::from_le_bytes(first)) | u32::from(u16::from_le_bytes(second)) << 16
}

simd! {
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
            (1, _) => {
                for (to, (&first, &second)) in to.iter_mut().zip(first.iter().zip(second)) {
                    *to = word(first, second);
                }
            }
            _ => (0..to.len()).for_each(#[inline(always)] |j| to[j] = word(first[j * stride], second[j * stride])),
        }
    }
}
