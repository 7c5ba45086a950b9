//! Product of all rows with one block of the right operand.

use super::elements::{Elements, Space};
use super::level::Level;
use super::pack::Unpacked;
use super::tile::{Tile, compute_buffered};
use super::units;
use super::{Matrix, PAGE, blocks_of, tiles_of};
use smallvec::SmallVec;
use std::ops::Range;

/// Tiles whose words are written together: the elements of a row for them fill whole cache lines.
const TILES: usize = 4;
/// Tiles whose units are written together: a row is read in runs of a kilobyte.
const UNIT_TILES: usize = 16;
/// Rows of `a` that may share a set of the L1 cache: two thirds of its ways.
const SET: usize = 8;
/// With fewer columns, copying rows of `a` costs more than it saves.
const FEW_COLUMNS: usize = 64;

/// A block of the right operand, and what to do with its products.
pub(super) struct Block<'a> {
    pub(super) level: &'a Level,
    pub(super) columns: usize,
    /// Terms of each product.
    pub(super) k: usize,
    pub(super) b: Matrix<Elements>,
    pub(super) scale: f32,
    pub(super) accumulate: bool,
    /// The right operand if full panels are read where they are. Rows must be contiguous for that.
    pub(super) direct: Option<Matrix<*const f32>>,
    /// Rows of `a` are copied, a tile at a time.
    pub(super) gathers: bool,
    /// Space for the panels in the order of the tiles.
    pub(super) packed: *mut f32,
    /// They are there already.
    pub(super) is_packed: bool,
    /// Space for the words of all rows of `a`, if they are not in place.
    pub(super) words: *mut f32,
    /// Words of a row with those of all terms, not only of the block's.
    pub(super) row: usize,
    /// They are there already.
    pub(super) has_words: bool,
    /// Space for words of `b`: the columns of the largest tile, of [`DEPTH`](super::DEPTH).
    pub(super) space: *mut f32,
    /// Space for copied rows of the largest tile.
    pub(super) copied: *mut f32,
}

/// A panel of columns in the order of the tiles.
struct Panel {
    first: usize,
    columns: usize,
    /// Columns with the padding.
    width: usize,
    rows: *const f32,
    stride: usize,
}

/// True if the lines of `a` that a tile reads again for each panel share so few sets of the L1 cache that they do not stay there:
/// one or two for all words, or one for all rows. Words of `k` terms that are written elsewhere do not.
pub(super) fn gathers(level: &Level, a: Matrix<Elements>, k: usize, columns: usize) -> bool {
    let crowded = a.transposed().words_in_place(k, level.terms).is_some_and(|words| match words.strides {
        [along, 1] => along.is_multiple_of(PAGE / 2),
        [1, down] => down.is_multiple_of(PAGE) && level.rows > SET,
        _ => false,
    });
    crowded && level.unit == 1 && columns >= FEW_COLUMNS
}

/// The words of a left operand with `k` terms where they are, if the micro-kernel finds them there.
pub(super) fn in_place(level: &Level, a: Matrix<Elements>, k: usize) -> Option<Matrix<*const f32>> {
    let there = a.transposed().words_in_place(k, level.terms).map(Matrix::transposed);
    there.filter(|words| level.unit == 1 || words.strides[1] == 1 && k.is_multiple_of(level.terms * level.unit))
}

impl Block<'_> {
    /// Computes the products of `m` rows of `a`.
    ///
    /// # Safety
    /// The operands may be read; the result, the packed panels and the space may be written.
    pub(super) unsafe fn run(&self, m: usize, a: Matrix<Elements>, out: Matrix<*mut f32>) {
        // SAFETY: as the caller promises.
        unsafe {
            if !self.is_packed {
                self.pack();
            }
            let shared = in_place(self.level, a, self.k).is_some_and(|a| a.strides[0].is_multiple_of(PAGE));
            let few = shared && !self.gathers && self.level.unit == 1;
            let mut all = tiles_of(self.level, m, if few { SET.min(self.level.rows) } else { self.level.rows });
            loop {
                let together = if self.level.unit > 1 { UNIT_TILES } else { TILES };
                let tiles: SmallVec<[_; UNIT_TILES]> = all.by_ref().take(together).collect();
                if tiles.is_empty() {
                    break;
                }
                let words = if self.level.unit > 1 { self.units_of(a, &tiles) } else { self.words_of(a, &tiles) };
                for (rows, words) in tiles.iter().zip(words) {
                    self.rows(rows.clone(), words, out);
                }
            }
        }
    }

    /// The units of the rows of some tiles of `a`: where they are, or written once for all columns.
    ///
    /// # Safety
    /// As for [`Block::run`].
    unsafe fn units_of(
        &self,
        a: Matrix<Elements>,
        tiles: &[Range<usize>],
    ) -> SmallVec<[Matrix<*const f32>; UNIT_TILES]> {
        let (k, level) = (self.k, self.level);
        let there = in_place(level, a, k);
        let place = |rows: &Range<usize>| self.words.wrapping_add(rows.start * self.row);
        if let ([first, ..], [.., last], None, false) = (tiles, tiles, there, self.has_words) {
            // SAFETY: as the caller promises.
            unsafe {
                let size = [last.end - first.start, k];
                (level.write_units)(a.at([first.start, 0]), size, place(first), self.row / level.unit);
            }
        }
        let units = tiles.iter().map(|rows| match there {
            None => units::written(place(rows)),
            Some(there) if rows.len().is_multiple_of(level.unit) => there.at([rows.start, 0]),
            Some(_) => {
                // SAFETY: as the caller promises; no other tile has rows that fill no register.
                unsafe { (level.write_units)(a.at([rows.start, 0]), [rows.len(), k], self.copied, 0) };
                units::written(self.copied)
            }
        });
        units.collect()
    }

    /// The words of the rows of some tiles of `a`.
    ///
    /// # Safety
    /// As for [`Block::run`].
    unsafe fn words_of(
        &self,
        a: Matrix<Elements>,
        tiles: &[Range<usize>],
    ) -> SmallVec<[Matrix<*const f32>; UNIT_TILES]> {
        let (k, terms, columns) = (self.k, self.level.terms, a.transposed());
        // SAFETY: as the caller promises.
        let is_filled = self.has_words || unsafe { columns.write_pairs(k, terms, tiles, self.words) };
        let words = tiles.iter().map(|rows| {
            let at = self.words.wrapping_add(rows.start * k.div_ceil(terms));
            // SAFETY: as the caller promises.
            unsafe { columns.at([0, rows.start]).words([k, rows.len()], terms, Space { at, is_filled }).transposed() }
        });
        words.collect()
    }

    /// The products of the rows of a tile, which are given in words.
    unsafe fn rows(&self, rows: Range<usize>, mut a: Matrix<*const f32>, out: Matrix<*mut f32>) {
        let size = [rows.len(), self.k.div_ceil(self.level.terms)];
        if self.gathers {
            // SAFETY: as the caller of `run` promises; the space holds the words of the largest tile.
            a = unsafe { (self.level.gather_rows)(a, size, self.copied) };
        }
        for panel in self.panels() {
            // SAFETY: as the caller of `run` promises.
            unsafe { self.tile(rows.len(), &panel, a, out.at([rows.start, panel.first])) };
        }
    }

    /// Packs all panels, or the last one if that is not a full one and the others are read where they are.
    unsafe fn pack(&self) {
        let width = self.level.width();
        let first = if self.direct.is_some() { self.columns / width * width } else { 0 };
        let (from, columns) = (self.b.at([0, first]), self.columns - first);
        if columns == 0 {
            return;
        }
        let Block { k, space, .. } = *self;
        let from = Unpacked { from, k, columns, terms: self.level.terms, words: self.padded(), space };
        // SAFETY: as the caller of `run` promises.
        unsafe { (self.level.pack)(&from, self.packed.add(first * self.padded()), width) };
    }

    /// Words of each product, with those that are filled up.
    fn padded(&self) -> usize {
        self.level.words(self.k)
    }

    fn panels(&self) -> impl Iterator<Item = Panel> {
        let full = self.level.width();
        blocks_of(self.columns, full).map(move |range| {
            let (first, columns) = (range.start, range.len());
            let width = columns.next_multiple_of(self.level.lanes);
            let (rows, stride) = match self.direct {
                Some(b) if columns == full => (b.at([0, first]).data, b.strides[0]),
                _ => (self.packed.wrapping_add(first * self.padded()).cast_const(), width),
            };
            Panel { first, columns, width, rows, stride }
        })
    }

    /// The product of a few rows and a panel. A result narrower than full vectors goes through a buffer.
    unsafe fn tile(&self, rows: usize, panel: &Panel, a: Matrix<*const f32>, out: Matrix<*mut f32>) {
        let compute = self.level.tiles[rows - 1][panel.width / self.level.lanes - 1];
        let tile = Tile {
            words: self.padded(),
            a: a.data,
            a_strides: a.strides,
            b: panel.rows,
            b_stride: panel.stride,
            out: out.data,
            out_stride: out.strides[0],
            scale: self.scale,
            accumulate: self.accumulate,
        };
        // SAFETY: as the caller of `run` promises.
        unsafe {
            if out.strides[1] == 1 && panel.columns == panel.width {
                return compute(&tile);
            }
            compute_buffered(compute, tile, [rows, panel.columns, panel.width], out);
        }
    }
}
