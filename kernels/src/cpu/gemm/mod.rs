//! Matrix products.
//!
//! The result is computed tile by tile, each tile as large as the registers allow (`tile`), for AVX-512, AVX2 or the
//! baseline (`level`). Blocking retains reused data in the caches, as in Goto and van de Geijn, "Anatomy of
//! high-performance matrix multiplication" (2008). A block of the right operand is packed into the order of the tiles
//! (`pack`) and stays in the L2 cache. A panel of rows of the left operand stays in the L1 cache. The left operand is read
//! in place: a tile needs single elements of it, and no packed order makes these reads cheaper. Only where its lines share few
//! sets of the L1 cache, rows are copied.
//!
//! Narrow operands (`elements`) are widened by parts, the right one as it is packed, the left one a strip of rows at a
//! time. All else is as for their f32 numbers, and so is the result, bit for bit. A processor with AVX512-BF16 multiplies two
//! operands in bf16 without widening: a `word` then is a pair of terms, and the operands are written as pairs instead.
//!
//! The order in which an element's terms are added depends on `k` alone: neither on the other sizes nor on the number of
//! threads.

mod block;
mod elements;
mod level;
mod pack;
#[cfg(test)]
mod pair_tests;
#[cfg(test)]
mod tests;
mod tile;
mod vector;
mod word;

use std::cell::RefCell;
use std::ops::Range;

use self::block::Block;
use self::elements::Elements;
use self::level::Level;
use super::columns::CHUNK;
use super::matrix::Matrix;
use super::nd::span;
use super::par::Par;
use crate::cpu::narrow::Floats;

/// Words added up in registers before the result is touched: so much of a panel of rows and one of columns fit the L1
/// cache.
const DEPTH: usize = 272;
/// Columns of a block of the right operand, which then takes 272 KiB of the L2 cache.
const COLUMNS: usize = 256;
/// With fewer rows, packing a right operand with contiguous rows costs more than it saves.
const FEW_ROWS: usize = 256;
/// Elements of a page. Rows at a distance of whole pages share one set of the L1 cache, and a few of the L2 cache.
const PAGE: usize = 1024;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct CacheLine {
    _elements: [f32; 16],
}

thread_local! {
    /// Packed blocks. It grows to what the largest product needs and stays.
    static WORKSPACE: RefCell<Vec<CacheLine>> = const { RefCell::new(Vec::new()) };
}

/// True if this processor multiplies bf16 in pairs: products of two such operands then have other bits than those of their
/// f32 numbers.
#[cfg(test)]
pub(crate) fn multiplies_pairs() -> bool {
    Level::of_pairs().is_some()
}

/// `out = scale a b`, or that added, for `a` of `m` x `k` and `b` of `k` x `n`.
///
/// # Panics
/// If `a` or `b` reaches beyond its slice.
///
/// # Safety
/// The elements of `out` must be valid for writes (and reads, to add) that no one else makes meanwhile.
pub(crate) unsafe fn multiply<'a, 'b>(
    size: [usize; 3],
    a: Matrix<impl Into<Floats<'a>>>,
    b: Matrix<impl Into<Floats<'b>>>,
    out: Matrix<*mut f32>,
    scale: f32,
    accumulate: bool,
    threads: usize,
) {
    let [m, n, k] = size;
    let (a, b) = (a.pointer([m, k]), b.pointer([k, n]));
    let product = Product { size, a, b, out, scale, accumulate, finish: None }.with_contiguous_rows();
    // SAFETY: as the caller promises.
    unsafe { product.run_on(threads) };
}

/// `out = a b` for contiguous rows of `out`. As soon as a few rows of a block of columns are complete, while they are in the nearest
/// cache, `finish` works on each of them.
///
/// # Panics
/// If `a` or `b` reaches beyond its slice, or rows of `out` are not contiguous.
///
/// # Safety
/// As for [`multiply`].
pub(crate) unsafe fn multiply_finished<'a, 'b>(
    size: [usize; 3],
    a: Matrix<impl Into<Floats<'a>>>,
    b: Matrix<impl Into<Floats<'b>>>,
    out: Matrix<*mut f32>,
    threads: usize,
    finish: &dyn Finish,
) {
    let [m, n, k] = size;
    assert_eq!(out.strides[1], 1, "rows of the result are contiguous");
    let (a, b) = (a.pointer([m, k]), b.pointer([k, n]));
    let finish = Some(Finishing { finish, first: [0, 0] });
    // SAFETY: as the caller promises.
    unsafe { Product { size, a, b, out, scale: 1.0, accumulate: false, finish }.run_on(threads) };
}

/// Work on the elements of a product as soon as they are complete.
///
/// The elements of a column come in the order of their rows on each thread, and those of a [`CHUNK`] of rows come on one thread.
pub trait Finish: Sync {
    /// Called for a number of elements of a row, from a row and a column on, before they are computed: what their work reads may be
    /// fetched meanwhile.
    fn expect(&self, _at: [usize; 2], _len: usize) {}

    /// Works on a run of elements of a row, from a row and a column on.
    fn finish(&self, at: [usize; 2], run: &[f32]);
}

impl<F: Fn([usize; 2], &[f32]) + Sync> Finish for F {
    fn finish(&self, at: [usize; 2], run: &[f32]) {
        self(at, run);
    }
}

/// Work on the elements of a part of a product.
#[derive(Clone, Copy)]
struct Finishing<'f> {
    finish: &'f dyn Finish,
    /// The first row and column of the part.
    first: [usize; 2],
}

impl Finishing<'_> {
    /// Announces a number of rows and columns from a row and a column of the part on.
    fn expect(&self, [row, column]: [usize; 2], [rows, columns]: [usize; 2]) {
        for i in 0..rows {
            self.finish.expect([self.first[0] + row + i, self.first[1] + column], columns);
        }
    }

    /// Finishes a number of rows and columns from a row and a column of the part on.
    ///
    /// # Safety
    /// Nobody writes them meanwhile.
    unsafe fn rows(&self, [row, column]: [usize; 2], [rows, columns]: [usize; 2], out: Matrix<*mut f32>) {
        for i in 0..rows {
            // SAFETY: the row is contiguous, and as the caller promises.
            let run = unsafe { std::slice::from_raw_parts(out.at([i, 0]).data, columns) };
            self.finish.finish([self.first[0] + row + i, self.first[1] + column], run);
        }
    }
}

/// A product, unchecked.
#[derive(Clone, Copy)]
struct Product<'f> {
    size: [usize; 3],
    a: Matrix<Elements>,
    b: Matrix<Elements>,
    out: Matrix<*mut f32>,
    scale: f32,
    accumulate: bool,
    finish: Option<Finishing<'f>>,
}

// SAFETY: threads read `a` and `b`, and write to elements of `out` of their own.
unsafe impl Sync for Product<'_> {}

/// Writes the transposed matrix of `rows` contiguous rows of `width` elements: `width` rows at distance `stride`. Each is
/// padded with zeros to a whole number of vectors, as far as `stride` allows.
///
/// # Panics
/// If the matrix reaches beyond its slice, or `to` has not `width` rows of `stride`, a multiple of 16.
pub(crate) fn transpose(from: Matrix<&[f32]>, [rows, width]: [usize; 2], to: &mut [f32], stride: usize) {
    assert!(span(&[rows, width], &from.strides) <= from.data.len() && from.strides[1] == 1, "contiguous rows");
    assert!(stride.is_multiple_of(16) && rows <= stride && to.len() >= width * stride, "room for whole vectors");
    // SAFETY: as has been checked; no vector has more than 16 lanes.
    unsafe {
        (Level::detect().transpose)(from.data.as_ptr(), from.strides[0], [rows, width], to.as_mut_ptr(), stride);
    }
}

/// `out[j] = sum a[q, j] b[q, j]` for matrices with `out.len()` columns, a multiple of 16. Up to
/// [`DEPTH`] terms are added as [`multiply`] adds them: for equal terms, the sum has the same bits.
///
/// # Panics
/// If the sizes differ, or `out` is no multiple of 16.
pub(crate) fn column_products(a: &[f32], b: &[f32], out: &mut [f32]) {
    let k = a.len().checked_div(out.len()).unwrap_or(0);
    assert!(out.len().is_multiple_of(16) && a.len() == k * out.len() && b.len() == a.len(), "whole rows of vectors");
    // SAFETY: as has been checked.
    unsafe {
        (Level::detect().column_products)([a.as_ptr(), b.as_ptr()], [k, out.len()], out.as_mut_ptr());
    }
}

impl<'f> Product<'f> {
    /// Computes it on a number of threads, which share the rows or the columns.
    ///
    /// # Safety
    /// As for [`multiply`].
    unsafe fn run_on(&self, threads: usize) {
        let level = self.level();
        let [m, n, _] = self.size;
        let rows = if self.finish.is_some() { CHUNK } else { level.rows };
        let (size, unit) = if m > n { (m, rows) } else { (n, level.width()) };
        let units = size.div_ceil(unit);
        Par(threads.min(units)).rows(units, usize::MAX, (), &|range, ()| {
            let range = range.start * unit..size.min(range.end * unit);
            // SAFETY: the sizes have been checked; the caller answers for `out`; parts have elements of their own.
            unsafe { self.part(m > n, range).run(level) };
        });
    }

    /// The transposed product, if that has contiguous rows in its result and this one has not.
    fn with_contiguous_rows(self) -> Product<'f> {
        if self.out.strides[1] == 1 || self.out.strides[0] != 1 {
            return self;
        }
        let [m, n, k] = self.size;
        let (a, b, out) = (self.b.transposed(), self.a.transposed(), self.out.transposed());
        Product { size: [n, m, k], a, b, out, ..self }
    }

    /// The micro-kernels for the formats of the operands.
    fn level(&self) -> &'static Level {
        let pairs = if self.a.are_bf16() && self.b.are_bf16() { Level::of_pairs() } else { None };
        pairs.unwrap_or_else(Level::detect)
    }

    /// Some of the rows of the result, or of the columns.
    fn part(self, rows: bool, range: Range<usize>) -> Product<'f> {
        let ([m, n, k], first) = (self.size, if rows { [range.start, 0] } else { [0, range.start] });
        let finish = self.finish.map(|finishing| Finishing { first, ..finishing });
        let part = Product { out: self.out.at(first), finish, ..self };
        if rows {
            Product { size: [range.len(), n, k], a: self.a.at(first), ..part }
        } else {
            Product { size: [m, range.len(), k], b: self.b.at(first), ..part }
        }
    }

    /// Computes it on this thread.
    ///
    /// # Safety
    /// The operands may be read, and the result be written. For a level of pairs, both operands are bf16.
    unsafe fn run(&self, level: &Level) {
        let [m, n, k] = self.size;
        if k == 0 {
            // SAFETY: as the caller promises.
            return unsafe { self.clear() };
        }
        let finish = |columns: usize| {
            self.finish
                .map(|finishing| Finishing { first: [finishing.first[0], finishing.first[1] + columns], ..finishing })
        };
        let depth = k.div_ceil(k.div_ceil(level.terms * DEPTH)).next_multiple_of(level.terms);
        let [down, across] = self.b.strides;
        let direct = across == 1 && m <= FEW_ROWS && !down.is_multiple_of(PAGE);
        let wide = self.a.in_place().is_some() && self.b.in_place().is_some();
        let gathers = block::gathers(level, self.a, n);
        WORKSPACE.with_borrow_mut(|workspace| {
            let packed = (depth / level.terms * n.min(COLUMNS).next_multiple_of(level.width())).div_ceil(16);
            let lines = packed + if wide && !gathers { 0 } else { (level.strip() * DEPTH).div_ceil(16) };
            if workspace.len() < lines {
                workspace.resize(lines, CacheLine { _elements: [0.0; 16] });
            }
            let workspace = workspace.as_mut_ptr();
            for columns in blocks(n, COLUMNS) {
                for terms in blocks(k, depth) {
                    let b = self.b.at([terms.start, columns.start]);
                    let block = Block {
                        level,
                        columns: columns.len(),
                        k: terms.len(),
                        b,
                        scale: self.scale,
                        accumulate: self.accumulate || terms.start > 0,
                        direct: if direct { b.in_place() } else { None },
                        gathers,
                        packed: workspace.cast(),
                        space: workspace.wrapping_add(packed).cast(),
                        finish: finish(columns.start).filter(|_| terms.end == k),
                    };
                    let (a, out) = (self.a.at([0, terms.start]), self.out.at([0, columns.start]));
                    // SAFETY: by the caller's contract; the workspace has space for the block.
                    unsafe { block.run(m, a, out) };
                }
            }
        });
    }

    /// The product of no terms.
    ///
    /// # Safety
    /// As for [`Product::run`].
    unsafe fn clear(&self) {
        let [m, n, _] = self.size;
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            if !self.accumulate {
                // SAFETY: as the caller promises.
                unsafe { *self.out.at([i, j]).data = 0.0 };
            }
        }
        if let Some(finishing) = self.finish {
            // SAFETY: as the caller promises.
            unsafe { finishing.rows([0, 0], [m, n], self.out) };
        }
    }
}

/// Ranges of `size`, the last one perhaps shorter, that cover `0..n`.
fn blocks(n: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(size).map(move |start| start..n.min(start + size))
}
