//! Packing: copies a block of the right operand into the order in which the micro-kernel reads it, and rows of the left one into
//! neighbouring cache lines.

use super::Matrix;
use super::elements::{Elements, Space};
use super::vector::Vector;

/// A block of `k` rows of `columns` elements.
#[derive(Clone, Copy)]
pub(super) struct Unpacked {
    pub(super) from: Matrix<Elements>,
    pub(super) k: usize,
    pub(super) columns: usize,
    /// Terms in a word.
    pub(super) terms: usize,
    /// Words of each column, with those that are filled up.
    pub(super) words: usize,
    /// Space for the words of a row or a panel of narrow elements.
    pub(super) space: *mut f32,
}

/// Writes the words of a block in panels of `width` columns, a whole number of vectors: in each of them the columns of a row
/// are neighbours, and rows follow one another. The last panel has only the vectors it needs, padded with zeros, and so are rows
/// beyond the last words.
///
/// # Safety
/// The processor has the instructions of `V`; the source may be read, and its space and all panels be written.
#[inline(always)]
pub(super) unsafe fn pack<V: Vector>(source: &Unpacked, to: *mut f32, width: usize) {
    let Unpacked { from, k, columns, terms, words, space } = *source;
    let (filled, space) = (k.div_ceil(terms), Space { at: space, is_filled: false });
    let panels = || (0..columns).step_by(width).map(|first| (first, width.min(columns - first)));
    // SAFETY: as the caller promises.
    unsafe {
        for (first, count) in panels() {
            let stride = count.next_multiple_of(V::LANES);
            to.add(first * words + filled * stride).write_bytes(0, (words - filled) * stride);
        }
        if from.strides[1] == 1 {
            for q in 0..filled {
                for row in q * terms..(q + 1) * terms {
                    from.at([row, 0]).prefetch_row(columns);
                }
                let row = from.at([q * terms, 0]).words([terms.min(k - q * terms), columns], terms, space).data;
                for (first, count) in panels() {
                    let to = to.add(first * words + q * count.next_multiple_of(V::LANES));
                    copy::<V>(row.add(first), to, count);
                }
            }
            return;
        }
        for (first, count) in panels() {
            let (to, stride) = (to.add(first * words), count.next_multiple_of(V::LANES));
            let Matrix { data, strides } = from.at([0, first]).words([k, count], terms, space);
            if strides[0] == 1 {
                transpose::<V>(data, strides[1], [count, filled], to, stride);
            } else {
                gather(data, strides, [count, filled], to, stride);
            }
        }
    }
}

/// Copies the words of a few rows, at most as many as a vector has lanes, in the order in which they are contiguous: along the rows,
/// or down the columns.
///
/// # Safety
/// The processor has the instructions of `V`; the words may be read, and whole vectors of them be written.
#[inline(always)]
pub(super) unsafe fn gather_rows<V: Vector>(
    from: Matrix<*const f32>,
    [rows, words]: [usize; 2],
    to: *mut f32,
) -> Matrix<*const f32> {
    // SAFETY: as the caller promises.
    unsafe {
        if from.strides[0] == 1 {
            for q in 0..words {
                V::load_first(from.at([0, q]).data, rows).store(to.add(q * V::LANES));
            }
            return Matrix::rows(to.cast_const(), V::LANES).transposed();
        }
        let stride = words.next_multiple_of(V::LANES);
        for i in 0..rows {
            copy::<V>(from.at([i, 0]).data, to.add(i * stride), words);
        }
        Matrix::rows(to.cast_const(), stride)
    }
}

/// Copies `count` elements and fills up the last vector with zeros.
#[inline(always)]
unsafe fn copy<V: Vector>(from: *const f32, to: *mut f32, count: usize) {
    for j in (0..count).step_by(V::LANES) {
        // SAFETY: as the caller of `pack` promises.
        unsafe {
            let from = from.add(j);
            let v = if j + V::LANES <= count { V::load(from) } else { V::load_first(from, count - j) };
            v.store(to.add(j));
        }
    }
}

/// Writes `count` columns of `k` contiguous elements as rows at distance `stride`. The last vector of a row is padded
/// with zeros.
///
/// # Safety
/// The processor has the instructions of `V`; the source may be read, and whole vectors of the rows be written.
#[inline(always)]
pub(super) unsafe fn transpose<V: Vector>(
    from: *const f32,
    across: usize,
    [count, k]: [usize; 2],
    to: *mut f32,
    stride: usize,
) {
    for q in (0..k).step_by(V::LANES) {
        for j in (0..count).step_by(V::LANES) {
            // SAFETY: as the caller promises.
            unsafe { V::transpose(from.add(j * across + q), across, count - j, k - q, to.add(q * stride + j), stride) };
        }
    }
}

/// Columns and rows that are both apart.
unsafe fn gather(from: *const f32, strides: [usize; 2], [count, k]: [usize; 2], to: *mut f32, stride: usize) {
    for (q, j) in (0..k).flat_map(|q| (0..stride).map(move |j| (q, j))) {
        // SAFETY: as the caller of `pack` promises.
        unsafe {
            let value = if j < count { *from.add(q * strides[0] + j * strides[1]) } else { 0.0 };
            *to.add(q * stride + j) = value;
        }
    }
}
