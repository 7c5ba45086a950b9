//! The micro-kernels of each instruction set, and their choice at run time.

use super::pack::{Source, pack};
use super::tile::{Tile, compute};
use super::vector::Array;

/// The micro-kernels of an instruction set.
pub(super) struct Level {
    /// Rows of the largest tile.
    pub(super) rows: usize,
    /// Columns of a vector.
    pub(super) lanes: usize,
    /// By rows less one and vectors of columns less one.
    pub(super) tiles: &'static [&'static [unsafe fn(&Tile)]],
    pub(super) pack: unsafe fn(&Source, *mut f32, usize),
}

impl Level {
    /// Columns of the largest tile.
    pub(super) fn width(&self) -> usize {
        self.tiles[0].len() * self.lanes
    }

    /// The best that this processor has.
    pub(super) fn detect() -> &'static Level {
        #[cfg(target_arch = "x86_64")]
        match crate::cpu::simd::Level::detect() {
            crate::cpu::simd::Level::Avx512 => return &x86::AVX512,
            crate::cpu::simd::Level::Avx2 => return &x86::AVX2,
            crate::cpu::simd::Level::Baseline => {}
        }
        &PORTABLE
    }
}

/// The tiles of so many vectors and of each of these numbers of rows.
macro_rules! tiles {
    ($tile:ident, $vectors:tt, $($rows:literal)*) => { &[$(tiles!(@ $tile, $vectors, $rows)),*] };
    (@ $tile:ident, [$($vectors:literal)*], $rows:literal) => { &[$($tile::<$rows, $vectors>),*] };
}

/// What every processor can do. The largest tile takes 12 of SSE's 16 registers.
pub(super) static PORTABLE: Level =
    Level { rows: 6, lanes: 8, tiles: tiles!(portable, [1], 1 2 3 4 5 6), pack: pack::<Array> };

unsafe fn portable<const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
    // SAFETY: as the caller promises.
    unsafe { compute::<Array, ROWS, VECTORS>(tile) }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use std::arch::x86_64::{__m256, __m512};

    use super::super::pack::{Source, pack};
    use super::super::tile::{Tile, compute};
    use super::Level;

    /// The largest tile takes 28 of 32 registers.
    pub(in super::super) static AVX512: Level = Level {
        rows: 14,
        lanes: 16,
        tiles: tiles!(avx512, [1 2], 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        pack: pack_avx512,
    };

    /// The largest tile takes 12 of 16 registers.
    pub(in super::super) static AVX2: Level =
        Level { rows: 6, lanes: 8, tiles: tiles!(avx2, [1 2], 1 2 3 4 5 6), pack: pack_avx2 };

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn avx512<const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
        // SAFETY: as the caller promises.
        unsafe { compute::<__m512, ROWS, VECTORS>(tile) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn pack_avx512(source: &Source, to: *mut f32, stride: usize) {
        // SAFETY: as the caller promises.
        unsafe { pack::<__m512>(source, to, stride) }
    }

    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
        // SAFETY: as the caller promises.
        unsafe { compute::<__m256, ROWS, VECTORS>(tile) }
    }

    #[target_feature(enable = "avx2,fma")]
    unsafe fn pack_avx2(source: &Source, to: *mut f32, stride: usize) {
        // SAFETY: as the caller promises.
        unsafe { pack::<__m256>(source, to, stride) }
    }
}
