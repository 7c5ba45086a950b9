//! Matrix products.
//!
//! The result is computed tile by tile, each tile as large as the registers allow (`tile`), for AVX-512, AVX2 or the
//! baseline (`level`). Blocking retains reused data in the caches, as in Goto and van de Geijn, "Anatomy of
//! high-performance matrix multiplication" (2008). A block of the right operand is packed into the order of the tiles
//! (`pack`) and stays in the L2 cache. A panel of rows of the left operand stays in the L1 cache. The left operand is read
//! in place: a tile needs single elements of it, and no packed order makes these reads cheaper. Only where its lines share few
//! sets of the L1 cache, rows are copied.
//!
//! Narrow operands (`elements`) are widened by parts, the right one as it is packed, the left one with the first columns, for all
//! others too. All else is as for their f32 numbers, and so is the result, bit for bit. A processor with AVX512-BF16 multiplies two
//! operands in bf16 without widening: a `word` then is a pair of terms, and operands whose terms are not neighbours are written as
//! pairs instead. One with AMX adds the products of whole tiles of pairs (`amx`). It then takes long rows of terms at once, for strips of
//! rows whose results stay in the L2 cache beside the panels of all terms, since memory is slower than its sums. Left operands whose
//! terms are not neighbours are written in the order of its registers (`units`).
//!
//! The order in which an element's terms are added depends on `k` alone: neither on the other sizes nor on the number of
//! threads.

#[cfg(target_arch = "x86_64")]
mod amx;
mod block;
mod elements;
mod level;
pub(crate) mod ordered;
mod pack;
#[cfg(test)]
mod pair_tests;
#[cfg(test)]
mod tests;
mod tile;
mod units;
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
/// cache. AMX adds up to four times as many, from the L2 cache, but half as many if these are at most three blocks.
const DEPTH: usize = 272;
/// Columns of a block of the right operand, which then takes 272 KiB of the L2 cache; four times as many for AMX.
const COLUMNS: usize = 256;
/// Columns of a product that is computed in strips of rows.
const WIDE: usize = 1024;
/// Elements of the right operand for these columns: their packed blocks stay in the last-level cache; half as many for AMX, which then
/// are in the L2 cache.
const ELEMENTS: usize = 1 << 20;
/// Elements that wait for the work on them, 256 KiB: they are in the L2 cache beside a block of the right operand.
const WAITING: usize = 1 << 16;
/// Words of the left operand that are written once for all columns, or sums that wait for their next terms, 4 MiB: they stay in the
/// last-level cache.
const HELD: usize = 1 << 20;
/// Blocks of terms from which on sums are long.
const LONG: usize = 4;
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

/// Areas of these numbers of elements, one behind the other. Each begins a cache line.
fn carve<const N: usize>(memory: &mut Vec<CacheLine>, sizes: [usize; N]) -> [*mut f32; N] {
    let lines = sizes.map(|size| size.div_ceil(16));
    let all = lines.iter().sum();
    if memory.len() < all {
        memory.resize(all, CacheLine { _elements: [0.0; 16] });
    }
    let mut next = memory.as_mut_ptr();
    lines.map(|lines| {
        let area = next.cast::<f32>();
        next = next.wrapping_add(lines);
        area
    })
}

thread_local! {
    /// Sums of products whose terms go part by part, and which are not left. It grows to what the largest product needs and stays.
    static SUMS: RefCell<Vec<CacheLine>> = const { RefCell::new(Vec::new()) };
    /// Units of a left operand that several threads read. It grows to what the largest one needs and stays.
    static UNITS: RefCell<Vec<CacheLine>> = const { RefCell::new(Vec::new()) };
    /// Packed blocks. It grows to what the largest product needs and stays.
    static WORKSPACE: RefCell<Vec<CacheLine>> = const { RefCell::new(Vec::new()) };
}

/// True if this processor multiplies bf16 in pairs: products of two such operands then have other bits than those of their
/// f32 numbers.
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
    let product =
        Product { size, a, b, out: Some(out), scale, accumulate, finish: None, units: None }.with_contiguous_rows();
    // SAFETY: as the caller promises.
    unsafe { product.run_on(product.level(), threads) };
}

/// `out = a b` for contiguous rows of `out`, if that is given. As soon as some rows are complete, while they are in the L2 cache, `finish`
/// works on one after the other: it reads and writes other tensors of the product's shape in the order of memory.
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
    out: Option<Matrix<*mut f32>>,
    threads: usize,
    finish: &dyn Finish,
) {
    let [m, n, k] = size;
    assert!(out.is_none_or(|out| out.strides[1] == 1), "rows of the result are contiguous");
    let (a, b) = (a.pointer([m, k]), b.pointer([k, n]));
    let finish = Some(Finishing { finish, first: [0, 0] });
    let product = Product { size, a, b, out, scale: 1.0, accumulate: false, finish, units: None };
    // SAFETY: as the caller promises.
    unsafe { product.run_on(product.level(), threads) };
}

/// Work on the elements of a product as soon as they are complete.
///
/// The elements of a column come in the order of their rows on each thread, and those of a [`CHUNK`] of rows come on one thread.
pub trait Finish: Sync {
    /// Works on a run of at most [`RUN`] elements of a row, from a row and a column on. Meanwhile it may ask for what the work on the next
    /// run will read and write.
    fn finish(&self, at: [usize; 2], run: &[f32], next: Option<NextRun>);
}

/// The most elements of a run on which [`Finish`] works.
pub const RUN: usize = 512;

/// The run that comes next on a thread.
#[derive(Clone, Copy, Debug)]
pub struct NextRun {
    /// Its first row and column.
    pub at: [usize; 2],
    /// Its number of elements.
    pub len: usize,
}

impl<F: Fn([usize; 2], &[f32]) + Sync> Finish for F {
    fn finish(&self, at: [usize; 2], run: &[f32], _: Option<NextRun>) {
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
    /// Finishes a number of rows and columns from a row and a column of the part on.
    ///
    /// # Safety
    /// Nobody writes them meanwhile.
    unsafe fn rows(&self, [row, column]: [usize; 2], [rows, columns]: [usize; 2], out: Matrix<*mut f32>) {
        let runs = (0..rows).flat_map(|i| (0..columns).step_by(RUN).map(move |j| [i, j]));
        let place = |[i, j]: [usize; 2]| NextRun {
            at: [self.first[0] + row + i, self.first[1] + column + j],
            len: RUN.min(columns - j),
        };
        let following = runs.clone().skip(1).map(|run| Some(place(run))).chain([None]);
        for (run, next) in runs.zip(following) {
            let NextRun { at, len } = place(run);
            // SAFETY: rows are contiguous, and as the caller promises.
            self.finish.finish(at, unsafe { std::slice::from_raw_parts(out.at(run).data, len) }, next);
        }
    }
}

/// A product, unchecked.
#[derive(Clone, Copy)]
struct Product<'f> {
    size: [usize; 3],
    a: Matrix<Elements>,
    b: Matrix<Elements>,
    /// The place of the result; none if it is only worked on.
    out: Option<Matrix<*mut f32>>,
    scale: f32,
    accumulate: bool,
    finish: Option<Finishing<'f>>,
    /// The units of all rows of `a`, if they are written before.
    units: Option<*mut f32>,
}

// SAFETY: threads read `a`, `b` and the units, and write to elements of `out` of their own.
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
    unsafe fn run_on(&self, level: &Level, threads: usize) {
        let [m, n, _] = self.size;
        let rows = if self.finish.is_some() { CHUNK } else { level.rows };
        let (size, unit) = if m > n { (m, rows) } else { (n, level.width()) };
        let count = size.div_ceil(unit);
        let par = Par(threads.min(count));
        let run = |product: &Product<'_>| {
            par.rows(count, usize::MAX, (), &|range, ()| {
                let range = range.start * unit..size.min(range.end * unit);
                // SAFETY: the sizes have been checked; the caller answers for `out`; parts have elements of their own.
                unsafe { product.part(m > n, range).run(level) };
            });
        };
        let Some(words) = self.units_to_write(level).filter(|_| par.0 > 1 && m <= n) else { return run(self) };
        UNITS.with_borrow_mut(|memory| {
            let [units] = carve(memory, [words]);
            let product = Product { units: Some(units), ..*self };
            par.rows(m.div_ceil(level.rows), usize::MAX, (), &|tiles, ()| {
                let rows = tiles.start * level.rows..m.min(tiles.end * level.rows);
                // SAFETY: the rows may be read, and each thread has tiles of its own.
                unsafe { product.write_units(level, rows) };
            });
            run(&product);
        });
    }

    /// The words of all rows of `a`, if they are written in units and held at once.
    fn units_to_write(&self, level: &Level) -> Option<usize> {
        let [m, _, k] = self.size;
        let words = m.next_multiple_of(level.rows) * level.words(k);
        let is_written = level.unit > 1 && block::in_place(level, self.a, k).is_none();
        (is_written && (1..=HELD).contains(&words)).then_some(words)
    }

    /// Writes the units of some rows of `a`, whole tiles, to their place among those of all.
    ///
    /// # Safety
    /// The rows may be read, and nobody else uses their place now.
    unsafe fn write_units(&self, level: &Level, rows: Range<usize>) {
        let ([.., k], Some(units)) = (self.size, self.units) else { return };
        let (words, a) = (level.words(k), self.a.at([rows.start, 0]));
        // SAFETY: as the caller promises.
        unsafe {
            (level.write_units)(a, [rows.len(), k], units.add(rows.start * words), words / level.unit);
        }
    }

    /// The transposed product, if that has contiguous rows in its result and this one has not.
    fn with_contiguous_rows(self) -> Product<'f> {
        if self.out.is_none_or(|out| out.strides[1] == 1 || out.strides[0] != 1) {
            return self;
        }
        let [m, n, k] = self.size;
        let (a, b, out) = (self.b.transposed(), self.a.transposed(), self.out.map(Matrix::transposed));
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
        let finish = self.finish.map(|finishing| {
            let [row, column] = finishing.first;
            Finishing { first: [row + first[0], column + first[1]], ..finishing }
        });
        let part = Product { out: self.out.map(|out| out.at(first)), finish, ..self };
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
        if m == 0 || n == 0 {
            return;
        }
        if k == 0 {
            // SAFETY: as the caller promises.
            return unsafe { self.clear() };
        }
        let most = level.terms * if k <= level.terms * level.short { level.shallow } else { level.depth };
        let depth = k.div_ceil(k.div_ceil(most)).next_multiple_of(level.terms * level.unit);
        let is_in_place = |k: usize| block::in_place(level, self.a, k).is_some();
        let most_sums = HELD / n / level.rows * level.rows;
        // The left operand of long sums comes from memory: each part of the terms is multiplied with all columns before the next one.
        if level.unit > 1 && is_in_place(k) && k > LONG * depth && most_sums > 0 {
            for rows in tiles_of(level, m, most_sums) {
                // SAFETY: as the caller promises.
                unsafe { self.part(true, rows).run_terms(level, depth, depth) };
            }
            return;
        }
        if is_in_place(k) || self.finish.is_some() && level.unit == 1 {
            // SAFETY: as the caller promises.
            return unsafe { self.run_rows(level, depth) };
        }
        let most = |k: usize| (HELD / level.words(k) / level.rows * level.rows).max(level.rows);
        // Sums of rows that are held must have a place while their terms go by.
        if most(k) < m && k > depth && (self.out.is_some() || m.min(most(depth)) * n <= HELD) {
            for rows in tiles_of(level, m, most(depth)) {
                let blocks = if is_in_place(depth) { k / depth } else { most(depth) / rows.len() };
                // SAFETY: as the caller promises.
                unsafe { self.part(true, rows).run_terms(level, depth, blocks.max(1) * depth) };
            }
            return;
        }
        for rows in tiles_of(level, m, most(k)) {
            // SAFETY: as the caller promises.
            unsafe { self.part(true, rows).run_rows(level, depth) };
        }
    }

    /// Computes rows for some terms after the other, so that each block of the right operand is packed once. `depth` divides `terms`, so
    /// that the sums are those of all terms at once.
    ///
    /// # Safety
    /// As for [`Product::run_rows`].
    unsafe fn run_terms(&self, level: &Level, depth: usize, terms: usize) {
        let [m, n, k] = self.size;
        SUMS.with_borrow_mut(|sums| {
            let [space] = carve(sums, [if self.out.is_some() { 0 } else { m * n }]);
            let out = self.out.unwrap_or_else(|| Matrix::rows(space, n));
            for terms in blocks_of(k, terms) {
                let [a, b] = [self.a.at([0, terms.start]), self.b.at([terms.start, 0])];
                let (size, accumulate) = ([m, n, terms.len()], self.accumulate || terms.start > 0);
                let part = Product { size, a, b, out: Some(out), accumulate, finish: None, ..*self };
                // SAFETY: by the caller's contract; the sums are those of this thread.
                unsafe { part.run_rows(level, depth) };
            }
            if let Some(finishing) = self.finish {
                // SAFETY: as above.
                unsafe { finishing.rows([0, 0], [m, n], out) };
            }
        });
    }

    /// Computes rows whose words are written once for all columns, if they are not in place. Blocks have `depth` terms.
    ///
    /// # Safety
    /// As for [`Product::run`]; there are elements and terms.
    unsafe fn run_rows(&self, level: &Level, depth: usize) {
        let [m, n, k] = self.size;
        let gathers = block::gathers(level, self.a, k, n);
        let in_strips = self.finish.is_some() || level.unit > 1 && k * COLUMNS <= level.elements;
        let wide = if in_strips { self.wide(level) } else { n };
        let blocks = Blocks { level, depth, columns: level.block_columns(depth), gathers, wide };
        (level.prepare)();
        // Full tiles.
        let unit = level.rows;
        let strip = if in_strips { (WAITING / blocks.wide / unit).max(1) * unit } else { m }.min(m);
        let sizes = blocks.sizes(self, strip);
        WORKSPACE.with_borrow_mut(|workspace| {
            let [packed, words, space, copied, waiting] = carve(workspace, sizes);
            for columns in blocks_of(n, blocks.wide) {
                let is_first = columns.start == 0;
                let part = self.part(false, columns);
                for rows in blocks_of(m, strip) {
                    let is_packed = strip < m && rows.start > 0;
                    let out = part.out.map(|out| out.at([rows.start, 0]));
                    let out = out.unwrap_or_else(|| Matrix::rows(waiting, part.size[1]));
                    // SAFETY: by the caller's contract; the workspace has space for the blocks, and for a strip of the result.
                    unsafe {
                        let held = if level.unit > 1 { rows.start * level.words(k) } else { 0 };
                        let words = self.units.unwrap_or(words).wrapping_add(held);
                        let has_words = self.units.is_some() || !is_first && level.unit > 1;
                        part.strip(&blocks, rows.clone(), out, ([packed, words, space, copied], is_packed, has_words));
                        if let Some(finishing) = part.finish {
                            finishing.rows([rows.start, 0], [rows.len(), part.size[1]], out);
                        }
                    }
                }
            }
        });
    }

    /// Columns that are computed before the next ones: parts of nearly equal size, of whole blocks or of tiles that read several words.
    fn wide(&self, level: &Level) -> usize {
        let [_, n, k] = self.size;
        let block = if level.unit > 1 { level.width() } else { level.columns };
        let most = (level.elements / k).clamp(COLUMNS, WIDE) / block * block;
        n.div_ceil(n.div_ceil(most)).next_multiple_of(block).min(n)
    }

    /// Some rows of the result, all their columns. Blocks of the right operand are packed one after the other, or are already.
    ///
    /// # Safety
    /// As for [`Product::run`]; the workspace has space for all blocks.
    unsafe fn strip(
        &self,
        blocks: &Blocks<'_>,
        rows: Range<usize>,
        out: Matrix<*mut f32>,
        ([mut packed, words, space, copied], is_packed, has_words): ([*mut f32; 4], bool, bool),
    ) {
        let [m, n, k] = self.size;
        let [down, across] = self.b.strides;
        let direct = across == 1 && m <= FEW_ROWS && !down.is_multiple_of(PAGE);
        for columns in blocks_of(n, blocks.columns) {
            for terms in blocks_of(k, blocks.depth) {
                let b = self.b.at([terms.start, columns.start]);
                let block = Block {
                    level: blocks.level,
                    columns: columns.len(),
                    k: terms.len(),
                    b,
                    scale: self.scale,
                    accumulate: self.accumulate || terms.start > 0,
                    direct: if direct { b.in_place() } else { None },
                    gathers: blocks.gathers,
                    packed,
                    is_packed,
                    words: words.wrapping_add(blocks.level.together(rows.len()) * (terms.start / blocks.level.terms)),
                    row: blocks.level.words(k),
                    has_words: has_words || columns.start > 0,
                    space,
                    copied,
                };
                // SAFETY: as the caller promises.
                unsafe { block.run(rows.len(), self.a.at([rows.start, terms.start]), out.at([0, columns.start])) };
                if rows.len() < m {
                    packed = packed.wrapping_add(blocks.packed(columns.len(), terms.len()));
                }
            }
        }
    }

    /// The product of no terms.
    ///
    /// # Safety
    /// As for [`Product::run`].
    unsafe fn clear(&self) {
        let [m, n, _] = self.size;
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            if let Some(out) = self.out.filter(|_| !self.accumulate) {
                // SAFETY: as the caller promises.
                unsafe { *out.at([i, j]).data = 0.0 };
            }
        }
        if let Some(finishing) = self.finish {
            let mut zeros = vec![0.0; n];
            for row in 0..m {
                // SAFETY: the zeros are a row.
                unsafe { finishing.rows([row, 0], [1, n], Matrix::rows(zeros.as_mut_ptr(), n)) };
            }
        }
    }
}

/// How a product is cut into blocks.
struct Blocks<'l> {
    level: &'l Level,
    /// Terms of a block.
    depth: usize,
    /// Columns of a block.
    columns: usize,
    /// Rows of the left operand are copied.
    gathers: bool,
    /// Columns that are computed before the next ones.
    wide: usize,
}

impl Blocks<'_> {
    /// Elements of a packed block of columns and terms.
    fn packed(&self, columns: usize, terms: usize) -> usize {
        self.level.words(terms) * columns.next_multiple_of(self.level.width())
    }

    /// Elements of the workspace for packed blocks, for words of a strip of the left operand, for words of the right one, for copied rows
    /// of the left one, and for a strip of a result that is not left.
    fn sizes(&self, product: &Product<'_>, strip: usize) -> [usize; 5] {
        let [m, n, k] = product.size;
        let Blocks { level, gathers, .. } = *self;
        let all = blocks_of(self.wide, self.columns).map(|columns| {
            blocks_of(k, self.depth).map(|terms| self.packed(columns.len(), terms.len())).sum::<usize>()
        });
        let packed = if strip < m { all.sum() } else { self.packed(n.min(self.columns), self.depth) };
        let rows = if level.unit > 1 { m.next_multiple_of(level.rows) } else { strip };
        let words = if product.units.is_some() || block::in_place(level, product.a, k).is_some() {
            0
        } else {
            rows * level.words(k)
        };
        let space = if product.b.in_place().is_some() { 0 } else { level.width() * level.depth };
        let copied = if gathers || level.unit > 1 { level.rows.max(level.lanes) * level.depth } else { 0 };
        [packed, words, space, copied, if product.out.is_none() { strip * self.wide } else { 0 }]
    }
}

/// The rows of tiles that cover `0..m`, at most `most` each. They are nearly equal, since a last tile of few rows would cost as much as a
/// long one. Tiles of several registers are full but for the last one.
fn tiles_of(level: &Level, m: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let (is_full, count) = (level.unit > 1, m.div_ceil(most));
    (0..count).map(move |i| if is_full { i * most..m.min((i + 1) * most) } else { i * m / count..(i + 1) * m / count })
}

/// Ranges of `size`, the last one perhaps shorter, that cover `0..n`.
pub(crate) fn blocks_of(n: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(size).map(move |start| start..n.min(start + size))
}
