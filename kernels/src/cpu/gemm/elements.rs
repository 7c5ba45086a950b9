//! Operands in memory, of any format, and the widening of parts of them.

use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::super::matrix::Matrix;
use super::super::nd::span;
use crate::cpu::narrow::{Floats, Narrow, widen_rows};

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

    /// The first rows and columns in f32: where they are, or widened into `space`.
    ///
    /// # Safety
    /// The elements may be read, and as many of `space` be written.
    #[inline(always)]
    pub(super) unsafe fn wide(self, size: [usize; 2], space: *mut f32) -> Matrix<*const f32> {
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
        if down == 1 && across != 1 {
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
