//! Rows of the left operand as the registers of AMX read them: a unit is 16 words of each row of a tile, row by row. A tile has its
//! units one after the other, so that a micro-kernel reads contiguous lines.

use std::slice::from_raw_parts;

use super::Matrix;
use super::elements::{Elements, join_contiguous, word};
use super::vector::Vector;
use crate::cpu::prefetch::prefetch;

/// Rows of a register, and words of each.
pub(super) const UNIT: usize = 16;
/// Rows of a tile: two registers.
pub(super) const ROWS: usize = 2 * UNIT;
/// Terms in the words of a unit.
const TERMS: usize = 2 * UNIT;
/// Terms between those that are joined and those that are asked for.
const AHEAD: usize = 2 * TERMS;

/// An element of bf16.
type Bf16 = [u8; 2];

/// The units of a tile that [`write`] wrote. The distance of two words is that of two units over their words.
pub(super) fn written(at: *const f32) -> Matrix<*const f32> {
    Matrix { data: at, strides: [UNIT, ROWS] }
}

/// Writes the words of rows of `k` terms of bf16, tile by tile, which are a number of units apart. Words beyond the last term are filled
/// up with zeros; rows beyond the last one are left as they are.
///
/// # Safety
/// The processor has the instructions of `V`. The elements are bf16 and may be read, and whole tiles of units be written.
#[inline(always)]
pub(super) unsafe fn write<V: Vector>(a: Matrix<Elements>, [rows, k]: [usize; 2], to: *mut f32, apart: usize) {
    let Elements::Narrow(_, first) = a.data else { return };
    let (first, [down, across]) = (first.cast::<Bf16>(), a.strides);
    let units = k.div_ceil(TERMS);
    let place = |row: usize, unit: usize| (row / ROWS * apart + unit) * ROWS * UNIT + row % ROWS * UNIT;
    // SAFETY: as the caller promises.
    unsafe {
        if across == 1 {
            for row in 0..rows {
                for (unit, terms) in from_raw_parts(first.add(row * down), k).chunks(TERMS).enumerate() {
                    copy(terms, to.add(place(row, unit)));
                }
            }
            return;
        }
        for unit in 0..units {
            let terms = TERMS.min(k - TERMS * unit);
            for row in (0..rows).step_by(ROWS) {
                let (from, count) = (first.add(row * down + TERMS * unit * across), ROWS.min(rows - row));
                let mut words = [[0; ROWS]; UNIT];
                match down {
                    1 => join(from, across, [terms, count], &mut words),
                    _ => gather(from, [down, across], [terms, count], &mut words),
                }
                transpose::<V>(&words, to.add(place(row, unit)));
            }
        }
    }
}

/// Copies the terms of a row in a unit, filled up with zeros.
///
/// # Safety
/// A row of a unit may be written.
#[inline(always)]
unsafe fn copy(terms: &[Bf16], to: *mut f32) {
    let mut row = [[0; 2]; TERMS];
    match <&[Bf16; TERMS]>::try_from(terms) {
        Ok(terms) => row = *terms,
        Err(_) => row[..terms.len()].copy_from_slice(terms),
    }
    // SAFETY: as the caller promises.
    unsafe { to.cast::<[Bf16; TERMS]>().write_unaligned(row) };
}

/// The words of `terms` lines of contiguous elements, `across` apart. Lines that follow are asked for.
///
/// # Safety
/// The lines may be read.
#[inline(always)]
unsafe fn join(from: *const Bf16, across: usize, [terms, count]: [usize; 2], words: &mut [[u32; ROWS]; UNIT]) {
    let line = |term: usize| from.wrapping_add(term * across);
    for (q, words) in words.iter_mut().enumerate().take(terms.div_ceil(2)) {
        for term in [2 * q, 2 * q + 1] {
            prefetch(line(term + AHEAD).cast(), size_of::<Bf16>() * count);
        }
        // SAFETY: as the caller promises.
        unsafe {
            if count == ROWS && 2 * q + 1 < terms {
                let first = &*line(2 * q).cast::<[Bf16; ROWS]>();
                let second = &*line(2 * q + 1).cast::<[Bf16; ROWS]>();
                join_contiguous(first, second, words);
                continue;
            }
            for (row, to) in words.iter_mut().enumerate().take(count) {
                let second = if 2 * q + 1 < terms { *line(2 * q + 1).add(row) } else { [0; 2] };
                *to = word(*line(2 * q).add(row), second);
            }
        }
    }
}

/// The words of elements that are apart along both dims.
///
/// # Safety
/// The elements may be read.
unsafe fn gather(
    from: *const Bf16,
    [down, across]: [usize; 2],
    [terms, count]: [usize; 2],
    words: &mut [[u32; ROWS]; UNIT],
) {
    for (term, row) in (0..terms).flat_map(|term| (0..count).map(move |row| (term, row))) {
        // SAFETY: as the caller promises.
        let bits = u32::from(u16::from_le_bytes(unsafe { *from.add(row * down + term * across) }));
        words[term / 2][row] |= bits << (16 * (term % 2));
    }
}

/// Writes columns of words as rows of a unit.
///
/// # Safety
/// The processor has the instructions of `V`, and a unit may be written.
#[inline(always)]
unsafe fn transpose<V: Vector>(words: &[[u32; ROWS]; UNIT], to: *mut f32) {
    for row in (0..ROWS).step_by(V::LANES) {
        for q in (0..UNIT).step_by(V::LANES) {
            let from = (&raw const words[q][row]).cast();
            // SAFETY: as the caller promises; lanes are a divisor of a unit's words.
            unsafe { V::transpose(from, ROWS, V::LANES, V::LANES, to.add(row * UNIT + q), UNIT) };
        }
    }
}
