//! Tests of products of pairs in bf16: bit for bit the sums that `word` describes, on this processor or imitated.

use super::super::testing::{Stored, normals};
use super::level::{Level, PORTABLE};
use super::tile::{Tile, compute};
use super::units::UNIT;
use super::vector::{Array, Vector};
use super::word::{Pair, Word};
use super::*;
use crate::cpu::narrow::Narrow;

/// The number, or a zero of its sign if it is below the normal ones.
fn normal(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

/// `sum` with the products of two words.
fn add_pair(a: f32, b: f32, sum: f32) -> f32 {
    let halves = |x: f32| [x.to_bits() << 16, x.to_bits() & 0xffff_0000].map(f32::from_bits).map(normal);
    let ([a_low, a_high], [b_low, b_high]) = (halves(a), halves(b));
    let sum = normal(a_high.mul_add(b_high, normal(sum)));
    normal(a_low.mul_add(b_low, sum))
}

impl Word<Array> for Pair {
    unsafe fn add_products(a: Array, b: Array, sum: Array) -> Array {
        let lanes = |x: Array| {
            let mut lanes = [0.0; Array::LANES];
            // SAFETY: there is a place for each lane.
            unsafe { x.store(lanes.as_mut_ptr()) };
            lanes
        };
        let (a, b, mut sum) = (lanes(a), lanes(b), lanes(sum));
        (0..Array::LANES).for_each(|i| sum[i] = add_pair(a[i], b[i], sum[i]));
        // SAFETY: all lanes are there.
        unsafe { Array::load(sum.as_ptr()) }
    }
}

unsafe fn imitated<const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
    // SAFETY: as the caller promises.
    unsafe { compute::<Array, Pair, ROWS, VECTORS>(tile) }
}

/// The portable level with an imitation of the instruction.
static IMITATION: Level = Level {
    terms: 2,
    tiles: &[&[imitated::<1, 1>], &[imitated::<2, 1>], &[imitated::<3, 1>], &[imitated::<4, 1>]],
    rows: 4,
    ..PORTABLE
};

/// Sums of the first terms and of the second ones of several words, from `sums` on.
fn add_apart(sums: [f32; 2], a: f32, b: f32) -> [f32; 2] {
    let halves = |x: f32| [x.to_bits() << 16, x.to_bits() & 0xffff_0000].map(f32::from_bits).map(normal);
    let (a, b) = (halves(a), halves(b));
    [0, 1].map(|half| normal(a[half].mul_add(b[half], sums[half])))
}

/// `sum` with the products of the words of a register.
fn add_unit(words: impl Iterator<Item = [f32; 2]>, sum: f32) -> f32 {
    let [first, second] = words.fold([0.0; 2], |sums, [a, b]| add_apart(sums, a, b));
    normal(normal(sum) + normal(first + second))
}

/// An imitation of the micro-kernel of AMX.
unsafe fn imitated_unit<const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
    assert!(tile.words.is_multiple_of(UNIT), "rows of whole registers");
    let place = |q: usize| q / UNIT * UNIT * tile.a_strides[1] + q % UNIT;
    for (i, j) in (0..ROWS).flat_map(|i| (0..VECTORS * Array::LANES).map(move |j| (i, j))) {
        // SAFETY: as the caller promises.
        unsafe {
            let word = |q: usize| [*tile.a.add(i * tile.a_strides[0] + place(q)), *tile.b.add(q * tile.b_stride + j)];
            let to = tile.out.add(i * tile.out_stride + j);
            let before = if tile.accumulate { *to } else { 0.0 };
            let first = if tile.scale == 1.0 { before } else { 0.0 };
            let sum = (0..tile.words).step_by(UNIT).fold(first, |sum, q| add_unit((q..q + UNIT).map(word), sum));
            *to = if tile.scale == 1.0 { sum } else { sum.mul_add(tile.scale, before) };
        }
    }
}

macro_rules! imitated_units {
    ($($rows:literal)*) => { &[$(&[imitated_unit::<$rows, 1>, imitated_unit::<$rows, 2>]),*] };
}

static IMITATED_UNITS: Level = Level {
    terms: 2,
    unit: UNIT,
    columns: 2 * COLUMNS,
    depth: 2 * DEPTH,
    shallow: DEPTH / 2,
    short: DEPTH,
    elements: ELEMENTS / 2,
    tiles: imitated_units!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32),
    rows: 32,
    // SAFETY: as the caller promises.
    write_units: |a, size, to, apart| unsafe { units::write::<Array>(a, size, to, apart) },
    ..PORTABLE
};

fn levels() -> impl Iterator<Item = &'static Level> {
    let mut levels = vec![&IMITATION, &IMITATED_UNITS];
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512bf16") && Level::of_pairs().is_some() {
        levels.push(&level::x86::AVX512_BF16);
    }
    levels.extend(Level::of_pairs());
    levels.into_iter()
}

/// The product in bf16 and by definition, from zero or added, scaled and not.
fn check(level: &Level, size: [usize; 3], strides: [[usize; 2]; 2], accumulate: bool) {
    [0.5, 1.0].into_iter().for_each(|scale| check_scaled(level, size, strides, accumulate, scale));
}

fn check_scaled(level: &Level, size: [usize; 3], strides: [[usize; 2]; 2], accumulate: bool, scale: f32) {
    let [m, n, k] = size;
    let stored = |size: &[usize; 2], strides: &[usize; 2], seed| {
        Stored::new(Some(Narrow::Bf16), &normals(span(size, strides), seed))
    };
    let (a, b) = (stored(&[m, k], &strides[0], 1), stored(&[k, n], &strides[1], 2));
    let before = normals(m * n, 3);
    let mut out = before.clone();
    let product = Product {
        size,
        a: Matrix { data: a.floats(), strides: strides[0] }.pointer([m, k]),
        b: Matrix { data: b.floats(), strides: strides[1] }.pointer([k, n]),
        out: Some(Matrix::rows(out.as_mut_ptr(), n)),
        scale,
        accumulate,
        finish: None,
        units: None,
    };
    // SAFETY: all three have the elements that size and strides reach, and both operands are bf16.
    unsafe { product.run(level) };
    let at = |x: &Stored, [down, across]: [usize; 2], [i, j]: [usize; 2]| x.numbers[i * down + j * across];
    let join = |first: f32, second: f32| f32::from_bits(first.to_bits() >> 16 | second.to_bits());
    let most = 2 * if k <= 2 * level.short { level.shallow } else { level.depth };
    let depth = k.div_ceil(k.div_ceil(most)).next_multiple_of(2 * level.unit);
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let mut expected = if accumulate { before[i * n + j] } else { 0.0 };
        for terms in blocks_of(k, depth) {
            let word = |q: usize, end: usize| {
                let second = |x: f32| if q + 1 < end { x } else { 0.0 };
                let last = (q + 1).min(k - 1);
                let x = join(at(&a, strides[0], [i, q]), second(at(&a, strides[0], [i, last])));
                let y = join(at(&b, strides[1], [q, j]), second(at(&b, strides[1], [last, j])));
                [x, y]
            };
            let words = |Range { start, end }: Range<usize>| (start..end).step_by(2).map(move |q| word(q, end));
            let units = |unit: usize| terms.clone().step_by(2 * unit).map(move |q| q..terms.end.min(q + 2 * unit));
            expected = match level.unit {
                1 => expected + scale * words(terms).fold(0.0, |sum, [x, y]| add_pair(x, y, sum)),
                unit if scale == 1.0 => units(unit).fold(expected, |sum, unit| add_unit(words(unit), sum)),
                unit => expected + scale * units(unit).fold(0.0, |sum, unit| add_unit(words(unit), sum)),
            };
        }
        assert_eq!(out[i * n + j].to_bits(), expected.to_bits(), "{} {size:?} {strides:?} at {i}, {j}", level.unit);
    }
}

#[test]
fn pairs_in_every_layout() {
    for size in [
        [1, 1, 1],
        [2, 3, 5],
        [14, 32, 16],
        [15, 33, 17],
        [29, 70, 41],
        [130, 9, 20],
        [1, 300, 9],
        [70, 1, 2],
        [64, 32, 64],
        [150, 20, 75],
    ] {
        let [m, n, k] = size;
        for a in layouts([m, k]) {
            for b in layouts([k, n]) {
                levels().for_each(|level| check(level, size, [a, b], k % 2 == 0));
            }
        }
    }
}

/// Layouts of a matrix: by rows, by columns, with gaps in both, by rows of one element.
fn layouts([rows, columns]: [usize; 2]) -> Vec<[usize; 2]> {
    let mut layouts = vec![[columns, 1], [1, rows], [2 * columns + 3, 2]];
    if rows == 1 || columns == 1 {
        layouts.push([1, 1]);
    }
    layouts
}

#[test]
fn pairs_of_many_blocks() {
    for k in [DEPTH + 1, 2 * DEPTH, 2 * DEPTH + 1, 4 * DEPTH + 3, 8 * DEPTH + 3] {
        let columns = 4 * COLUMNS + 9;
        levels().for_each(|level| check(level, [5, columns, k], [[k, 1], [columns, 1]], true));
        levels().for_each(|level| check(level, [40, columns, k], [[1, 40], [columns, 1]], true));
    }
}

/// A vocabulary: its terms go part by part. Rows of an odd length have no words in place, those of an even one all but the last, and
/// those of whole units all.
#[test]
fn pairs_of_more_terms_than_are_held() {
    let [m, n] = [66, 5];
    for [k, down] in [[33_001, 33_001], [33_001, 33_002], [33_024, 33_024]] {
        for level in levels() {
            check_scaled(level, [m, n, k], [[down, 1], [n, 1]], true, 1.0);
        }
    }
}

/// A left operand by columns whose units threads share, and one whose units are more than are held: threads change no bit.
#[test]
fn threads_that_share_units_change_no_bit() {
    for size in [[70, 130, 900], [33, 40, 33], [64, 65, 33_000]] {
        let [m, n, k] = size;
        let stored = |len, seed| Stored::new(Some(Narrow::Bf16), &normals(len, seed));
        let (a, b) = (stored(m * k, 1), stored(k * n, 2));
        let (a, b) = (Matrix { data: a.floats(), strides: [1, m] }, Matrix::rows(b.floats(), n));
        let (a, b) = (a.pointer([m, k]), b.pointer([k, n]));
        for level in levels() {
            let product = |threads| {
                let mut out = vec![f32::NAN; m * n];
                let to = Some(Matrix::rows(out.as_mut_ptr(), n));
                let product = Product { size, a, b, out: to, scale: 1.0, accumulate: false, finish: None, units: None };
                // SAFETY: nobody else touches the result.
                unsafe { product.run_on(level, threads) };
                out
            };
            let alone = product(1);
            assert!([2, 3].iter().all(|&threads| product(threads) == alone), "{size:?}");
        }
    }
}

/// Sums that are only worked on are those that are left.
#[test]
fn finished_sums_of_more_terms_than_are_held() {
    for k in [33_001, 33_024] {
        finished_sums_are_left([66, 5, k]);
    }
}

fn finished_sums_are_left(size: [usize; 3]) {
    let [m, n, k] = size;
    let stored = |len, seed| Stored::new(Some(Narrow::Bf16), &normals(len, seed));
    let (a, b) = (stored(m * k, 1), stored(k * n, 2));
    let (a, b) = (Matrix::rows(a.floats(), k), Matrix::rows(b.floats(), n));
    let mut left = vec![0.0; m * n];
    // SAFETY: nobody else touches the result.
    unsafe { multiply(size, a, b, Matrix::rows(left.as_mut_ptr(), n), 1.0, false, 1) };
    for threads in [1, 2] {
        let worked = std::sync::Mutex::new(vec![0.0; m * n]);
        let finish = |[row, column]: [usize; 2], run: &[f32]| {
            worked.lock().unwrap()[row * n + column..][..run.len()].copy_from_slice(run);
        };
        // SAFETY: no result is left.
        unsafe { multiply_finished(size, a, b, None, threads, &finish) };
        assert_eq!(*worked.lock().unwrap(), left, "{size:?}, {threads} threads");
    }
}

/// The instruction and its imitation, on numbers of all sizes.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_processor_adds_pairs_as_described() {
    use std::arch::x86_64::{__m512, _mm512_loadu_ps, _mm512_storeu_ps};

    #[target_feature(enable = "avx512f,avx512bf16")]
    fn added(a: [f32; 16], b: [f32; 16], sum: [f32; 16]) -> [f32; 16] {
        let mut out = [0.0; 16];
        // SAFETY: each vector has sixteen elements.
        unsafe {
            let load = |x: &[f32; 16]| _mm512_loadu_ps(x.as_ptr());
            _mm512_storeu_ps(out.as_mut_ptr(), <Pair as Word<__m512>>::add_products(load(&a), load(&b), load(&sum)));
        }
        out
    }

    if Level::of_pairs().is_none() {
        return;
    }
    let mut bits = (0..).map(|i| crate::cpu::dropout::philox([5, 7], i)[0]);
    for _ in 0..10_000 {
        let [a, b, sum] = std::array::from_fn(|_| std::array::from_fn(|_| f32::from_bits(bits.next().unwrap())));
        // SAFETY: the processor has the instructions.
        let out = unsafe { added(a, b, sum) };
        for i in 0..16 {
            let expected = add_pair(a[i], b[i], sum[i]);
            let same = out[i].to_bits() == expected.to_bits() || out[i].is_nan() && expected.is_nan();
            assert!(
                same,
                "{:x} {:x} {:x}: {} for {expected}",
                a[i].to_bits(),
                b[i].to_bits(),
                sum[i].to_bits(),
                out[i]
            );
        }
    }
}

/// The instructions of AMX and their imitation, on numbers of all sizes.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_processor_adds_tiles_as_described() {
    if !super::amx::is_available() {
        return;
    }
    super::amx::prepare();
    let mut bits = (0..).map(|i| crate::cpu::dropout::philox([3, 11], i)[0]);
    for _ in 0..100 {
        let mut words = || -> [f32; 2 * UNIT * UNIT] { std::array::from_fn(|_| f32::from_bits(bits.next().unwrap())) };
        let (a, b) = (words(), words());
        let mut outs = [[0.0f32; UNIT * UNIT]; 2];
        for (out, compute) in outs.iter_mut().zip([super::amx::compute::<UNIT, 1>, imitated_tile]) {
            let tile = Tile {
                words: 2 * UNIT,
                a: a.as_ptr(),
                a_strides: [2 * UNIT, 1],
                b: b.as_ptr(),
                b_stride: UNIT,
                out: out.as_mut_ptr(),
                out_stride: UNIT,
                scale: 1.0,
                accumulate: false,
            };
            // SAFETY: the processor has the instructions, and each of the three has a tile's elements.
            unsafe { compute(&tile) };
        }
        for (out, expected) in outs[0].iter().zip(&outs[1]) {
            let same = out.to_bits() == expected.to_bits() || out.is_nan() && expected.is_nan();
            assert!(same, "{out} for {expected}");
        }
    }
}

/// A full register of sums, as 16 columns of the imitation's lanes.
#[cfg(target_arch = "x86_64")]
unsafe fn imitated_tile(tile: &Tile) {
    // SAFETY: as the caller promises.
    unsafe { imitated_unit::<UNIT, { UNIT / Array::LANES }>(tile) }
}
