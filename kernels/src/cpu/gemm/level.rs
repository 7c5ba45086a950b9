//! Micro-kernels of each instruction set, and their selection at run time.

use super::elements::Elements;
use super::pack::{Unpacked, gather_rows, pack, transpose};
use super::tile::{Tile, column_products, compute};
use super::vector::Array;
use super::word::Single;
use super::{COLUMNS, DEPTH, ELEMENTS, Matrix};

/// The micro-kernels of an instruction set.
pub(super) struct Level {
    /// Rows of the largest tile.
    pub(super) rows: usize,
    /// Columns of a vector.
    pub(super) lanes: usize,
    /// Terms in a word of an operand: one in f32, or two in bf16.
    pub(super) terms: usize,
    /// Rows and words of the left operand that the micro-kernel reads at once. If these are several, words are contiguous, and rows
    /// and words are filled up.
    pub(super) unit: usize,
    /// Columns of a block of the right operand, which then fits the L2 cache.
    pub(super) columns: usize,
    /// Words that are added up in registers before the result is touched.
    pub(super) depth: usize,
    /// Words that are added up in products of at most [`short`](Level::short) words: both operands then stay in the L1 cache.
    pub(super) shallow: usize,
    /// Words up to which adding to the result a few times costs less than reading both operands from the L2 cache again.
    pub(super) short: usize,
    /// Elements of the right operand for the columns of a strip.
    pub(super) elements: usize,
    /// Makes this thread ready for the micro-kernels.
    pub(super) prepare: fn(),
    /// By rows less one and vectors of columns less one.
    pub(super) tiles: &'static [&'static [unsafe fn(&Tile)]],
    pub(super) pack: unsafe fn(&Unpacked, *mut f32, usize),
    pub(super) gather_rows: unsafe fn(Matrix<*const f32>, [usize; 2], *mut f32) -> Matrix<*const f32>,
    /// Writes rows of a number of terms in units, if the micro-kernel reads several rows and words at once. Tiles are a number of units
    /// apart.
    pub(super) write_units: unsafe fn(Matrix<Elements>, [usize; 2], *mut f32, usize),
    /// Rounds rows of f32 to words of pairs of rows, or of neighbours, if the micro-kernel reads several rows and words at once.
    pub(super) round_pairs: unsafe fn(*const f32, [usize; 2], *mut f32, usize),
    pub(super) round_rows: unsafe fn(*const f32, [usize; 2], *mut f32, usize),
    pub(super) transpose: unsafe fn(*const f32, usize, [usize; 2], *mut f32, usize),
    pub(super) column_products: unsafe fn([*const f32; 2], [usize; 2], *mut f32),
}

impl Level {
    /// Columns of the largest tile.
    pub(super) fn width(&self) -> usize {
        self.tiles[0].len() * self.lanes
    }

    /// Columns of a block of a number of terms.
    pub(super) fn block_columns(&self, terms: usize) -> usize {
        let most = self.columns * DEPTH / self.words(terms).max(1);
        (most / self.width() * self.width()).clamp(self.width(), self.columns)
    }

    /// Words of a number of terms, filled up.
    pub(super) fn words(&self, terms: usize) -> usize {
        terms.div_ceil(self.terms).next_multiple_of(self.unit)
    }

    /// Rows of the left operand whose words lie behind each other before the next ones of the first row.
    pub(super) fn together(&self, rows: usize) -> usize {
        if self.unit > 1 { self.rows } else { rows }
    }

    /// The best that this processor has for f32.
    pub(super) fn detect() -> &'static Level {
        #[cfg(target_arch = "x86_64")]
        match crate::cpu::simd::Level::detect() {
            crate::cpu::simd::Level::Avx512 => return &x86::AVX512,
            crate::cpu::simd::Level::Avx2 => return &x86::AVX2,
            crate::cpu::simd::Level::Baseline => {}
        }
        &PORTABLE
    }

    /// That for pairs of bf16, if this processor multiplies them.
    pub(super) fn of_pairs() -> Option<&'static Level> {
        #[cfg(target_arch = "x86_64")]
        if crate::cpu::simd::Level::has_bf16() {
            return Some(if super::amx::is_available() { &x86::AMX_BF16 } else { &x86::AVX512_BF16 });
        }
        None
    }
}

/// The tiles of so many vectors and of each of these numbers of rows.
macro_rules! tiles {
    ($tile:ident, $vectors:tt, $($rows:literal)*) => { &[$(tiles!(@ $tile, $vectors, $rows)),*] };
    (@ $tile:ident, [$($vectors:literal)*], $rows:literal) => { &[$($tile::<$rows, $vectors>),*] };
}

/// The level of every processor. The largest tile takes 12 of SSE's 16 registers.
pub(super) static PORTABLE: Level = Level {
    rows: 6,
    lanes: 8,
    terms: 1,
    unit: 1,
    columns: COLUMNS,
    depth: DEPTH,
    shallow: DEPTH,
    short: 0,
    elements: ELEMENTS,
    prepare: || {},
    tiles: tiles!(portable, [1], 1 2 3 4 5 6),
    pack: pack::<Array>,
    gather_rows: gather_rows::<Array>,
    write_units: |_, _, _, _| {},
    round_pairs: |_, _, _, _| {},
    round_rows: |_, _, _, _| {},
    transpose: transpose::<Array>,
    column_products: column_products::<Array>,
};

unsafe fn portable<const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
    // SAFETY: as the caller promises.
    unsafe { compute::<Array, Single, ROWS, VECTORS>(tile) }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use std::arch::x86_64::{__m256, __m512};

    use super::super::amx::{self, compute};
    use super::super::word::{Pair, Single};
    use super::super::{COLUMNS, DEPTH, ELEMENTS, Matrix, pack, tile, units};
    use super::{Level, Tile, Unpacked};

    /// The generic functions for a vector, compiled with the instructions that it needs.
    macro_rules! functions {
        ($vector:ty, $features:literal) => {
            #[target_feature(enable = $features)]
            unsafe fn tile<const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
                // SAFETY: as the caller promises.
                unsafe { tile::compute::<$vector, Single, ROWS, VECTORS>(tile) }
            }

            #[target_feature(enable = $features)]
            unsafe fn pack(from: &Unpacked, to: *mut f32, width: usize) {
                // SAFETY: as the caller promises.
                unsafe { pack::pack::<$vector>(from, to, width) }
            }

            #[target_feature(enable = $features)]
            unsafe fn gather_rows(from: Matrix<*const f32>, size: [usize; 2], to: *mut f32) -> Matrix<*const f32> {
                // SAFETY: as the caller promises.
                unsafe { pack::gather_rows::<$vector>(from, size, to) }
            }

            #[target_feature(enable = $features)]
            unsafe fn transpose(from: *const f32, across: usize, size: [usize; 2], to: *mut f32, stride: usize) {
                // SAFETY: as the caller promises.
                unsafe { pack::transpose::<$vector>(from, across, size, to, stride) }
            }

            #[target_feature(enable = $features)]
            unsafe fn column_products(factors: [*const f32; 2], size: [usize; 2], out: *mut f32) {
                // SAFETY: as the caller promises.
                unsafe { tile::column_products::<$vector>(factors, size, out) }
            }
        };
    }

    /// The largest tile takes 28 of 32 registers.
    pub(in super::super) static AVX512: Level = {
        functions! { __m512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma" }
        Level {
            rows: 14,
            lanes: 16,
            terms: 1,
            unit: 1,
            columns: COLUMNS,
            depth: DEPTH,
            shallow: DEPTH,
            short: 0,
            elements: ELEMENTS,
            prepare: || {},
            tiles: tiles!(tile, [1 2], 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
            pack,
            gather_rows,
            write_units: |_, _, _, _| {},
            round_pairs: |_, _, _, _| {},
            round_rows: |_, _, _, _| {},
            transpose,
            column_products,
        }
    };

    /// Pairs of bf16, for processors with AVX512-BF16.
    pub(in super::super) static AVX512_BF16: Level =
        Level { terms: 2, tiles: tiles!(pairs, [1 2], 1 2 3 4 5 6 7 8 9 10 11 12 13 14), ..AVX512 };

    /// Pairs of bf16, for processors with AMX.
    pub(in super::super) static AMX_BF16: Level = Level {
        rows: units::ROWS,
        terms: 2,
        unit: units::UNIT,
        columns: 4 * COLUMNS,
        depth: 4 * DEPTH,
        shallow: DEPTH / 2,
        short: 3 * DEPTH / 2,
        elements: ELEMENTS / 2,
        prepare: amx::prepare,
        tiles: tiles!(compute, [1 2], 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32),
        write_units: amx::write_units,
        round_pairs: amx::round_pairs,
        round_rows: amx::round_rows,
        ..AVX512
    };

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    unsafe fn pairs<const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
        // SAFETY: as the caller promises.
        unsafe { tile::compute::<__m512, Pair, ROWS, VECTORS>(tile) }
    }

    /// The largest tile takes 12 of 16 registers.
    pub(in super::super) static AVX2: Level = {
        functions! { __m256, "avx2,fma" }
        Level {
            rows: 6,
            lanes: 8,
            terms: 1,
            unit: 1,
            columns: COLUMNS,
            depth: DEPTH,
            shallow: DEPTH,
            short: 0,
            elements: ELEMENTS,
            prepare: || {},
            tiles: tiles!(tile, [1 2], 1 2 3 4 5 6),
            pack,
            gather_rows,
            write_units: |_, _, _, _| {},
            round_pairs: |_, _, _, _| {},
            round_rows: |_, _, _, _| {},
            transpose,
            column_products,
        }
    };
}
