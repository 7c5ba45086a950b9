//! Scores and products of one block of queries and one block of keys, or of parts of them.

use std::ops::Range;

use super::super::dropout::drop_run;
use super::super::gemm::{self, blocks_of, multiply};
use super::super::math::tanh;
use super::super::matrix::{Matrix, Target};
use super::super::simd::simd;
use super::{Attention, Dropout, Head, Inputs};
use crate::cpu::narrow::{Floats, Narrow, SharedFloats, bytes_of, round_part, widen_rows};

/// Queries in a block.
pub(super) const QUERIES: usize = 128;
/// Keys in a block: its scores take 64 KiB, a small part of the L2 cache.
pub(super) const KEYS: usize = 128;
/// Queries of a part where some do not see all keys. Causal attention of 128 queries to themselves then computes 1.25 times the
/// scores that are seen, instead of twice as many.
pub(super) const PART: usize = 32;
/// Queries are padded to a multiple of this, one AVX-512 register, so that rows of scores are whole vectors.
pub(super) const LANES: usize = 16;

/// A block of queries of one head.
pub(super) struct Block<'a> {
    pub(super) attention: &'a Attention,
    pub(super) x: &'a Inputs<'a>,
    head: Head,
    /// The range of queries in the sequence.
    pub(super) queries: Range<usize>,
    /// Their number, padded.
    pub(super) lanes: usize,
}

/// Queries of a block, and the keys that some of them see.
#[derive(Clone)]
pub(super) struct Subblock {
    /// The queries, counted in their block.
    pub(super) lanes: Range<usize>,
    /// The range of keys in the sequence.
    pub(super) keys: Range<usize>,
    /// The first key that some query does not see.
    hidden: usize,
}

impl Subblock {
    /// True if each of the queries sees each of the keys.
    pub(super) fn is_seen(&self) -> bool {
        self.hidden == self.keys.end
    }

    /// A part whose keys begin with an earlier one, which need not be seen.
    pub(super) fn with_keys_from(self, start: usize) -> Subblock {
        let hidden = if start < self.keys.start { start } else { self.hidden };
        Subblock { keys: start..self.keys.end, hidden, ..self }
    }
}

/// Queries, or what belongs to them, as the columns of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    matrix: Matrix<Floats<'a>>,
    count: usize,
}

impl<'a> Columns<'a> {
    /// The columns of a part.
    fn part(self, lanes: &Range<usize>) -> Columns<'a> {
        let Matrix { data, strides } = self.matrix;
        let count = self.count.min(lanes.end) - lanes.start;
        Columns { matrix: Matrix { data: data.skip(lanes.start * strides[1]), strides }, count }
    }
}

/// Positions and segments of a block.
#[derive(Clone, Copy)]
struct Places<'a> {
    pos: &'a [i32],
    seg: &'a [i32],
}

impl<'a> Block<'a> {
    pub(super) fn new(attention: &'a Attention, x: &'a Inputs<'a>, head: Head, index: usize) -> Block<'a> {
        let start = index * QUERIES;
        let queries = start..attention.s.min(start + QUERIES);
        Block { attention, x, head, lanes: queries.len().next_multiple_of(LANES), queries }
    }

    /// The further score of this block's head, if there is one.
    pub(super) fn sink(&self) -> Option<f32> {
        let Head([_, g, r]) = self.head;
        let sink = self.x.sink?.skip(g * self.attention.r + r);
        let mut wide = [0.0];
        match sink {
            Floats::Wide(x) => wide[0] = x[0],
            Floats::Narrow(format, bytes) => widen_rows(format, bytes, [1, 1], &mut wide),
        }
        Some(wide[0])
    }

    /// The sequence and the key head.
    pub(super) fn key_head(&self) -> [usize; 2] {
        let Head([b, g, _]) = self.head;
        [b, g]
    }

    /// Index of the row of this block's `i`-th query among rows of all query heads.
    pub(super) fn row(&self, i: usize) -> usize {
        self.attention.query_row(self.head, self.queries.start + i)
    }

    /// The rows of `width` elements of this block's queries from a first one on, in a tensor of all queries.
    pub(super) fn of_queries<'x>(&self, first: usize, x: Floats<'x>, width: usize) -> Matrix<Floats<'x>> {
        Matrix::rows(x.skip(self.row(first) * width), self.attention.g * self.attention.r * width)
    }

    /// The rows of `width` elements of a part's keys in a tensor of all keys.
    pub(super) fn of_keys<'x>(&self, part: &Subblock, x: Floats<'x>, width: usize) -> Matrix<Floats<'x>> {
        let first = self.attention.key_row(self.head, part.keys.start);
        Matrix::rows(x.skip(first * width), self.attention.g * width)
    }

    /// As [`Block::of_queries`], to write to.
    pub(super) fn to_queries(&self, first: usize, x: Target, width: usize) -> Matrix<*mut f32> {
        Matrix::rows(x.0.wrapping_add(self.row(first) * width), self.attention.g * self.attention.r * width)
    }

    /// As [`Block::of_keys`], to write to.
    pub(super) fn to_keys(&self, part: &Subblock, x: Target, width: usize) -> Matrix<*mut f32> {
        let first = self.attention.key_row(self.head, part.keys.start);
        Matrix::rows(x.0.wrapping_add(first * width), self.attention.g * width)
    }

    /// Writes rows of `width` elements of all keys of this block's head.
    ///
    /// # Safety
    /// The rows must be in `to`, a tensor of all keys, and be written by no one else.
    pub(super) unsafe fn write_keys(&self, rows: &[f32], width: usize, to: SharedFloats) {
        for (j, row) in rows.chunks_exact(width).enumerate() {
            // SAFETY: as the caller promises.
            unsafe { to.write(self.attention.key_row(self.head, j) * width, row) };
        }
    }

    /// Transposes this block's rows of `width` elements into `out`: `width` rows of `lanes`, padded with zeros.
    pub(super) fn transpose(&self, x: Floats<'_>, width: usize, out: &mut [f32]) {
        let n = self.queries.len();
        if n < self.lanes {
            out.fill(0.0);
        }
        let Matrix { data, strides } = self.of_queries(0, x, width);
        let (format, bytes) = match data {
            Floats::Wide(x) => return gemm::transpose(Matrix { data: x, strides }, [n, width], out, self.lanes),
            Floats::Narrow(format, bytes) => (format, bytes),
        };
        for first in (0..width).step_by(LANES) {
            let count = LANES.min(width - first);
            let mut wide = [0.0; QUERIES * LANES];
            widen_rows(format, &bytes[first * format.bytes()..], [count, strides[0]], &mut wide[..n * count]);
            gemm::transpose(Matrix::rows(&wide, count), [n, count], &mut out[first * self.lanes..], self.lanes);
        }
    }

    /// This block's queries as columns: narrow ones where they are, and others transposed into `space`.
    pub(super) fn query_columns<'x>(&self, space: &'x mut [f32]) -> Columns<'x>
    where
        'a: 'x,
    {
        let Attention { d, .. } = *self.attention;
        if let Floats::Narrow(..) = self.x.q {
            return self.columns(self.x.q, d);
        }
        self.transpose(self.x.q, d, space);
        self.padded(space)
    }

    /// This block's rows of `width` elements as columns, where they are.
    pub(super) fn columns<'x>(&self, x: Floats<'x>, width: usize) -> Columns<'x> {
        Columns { matrix: self.of_queries(0, x, width).transposed(), count: self.queries.len() }
    }

    /// Columns that [`Block::transpose`] wrote.
    pub(super) fn padded<'x>(&self, transposed: &'x [f32]) -> Columns<'x> {
        Columns { matrix: Matrix::rows(transposed.into(), self.lanes), count: self.lanes }
    }

    /// The blocks of keys that some query of this block sees.
    pub(super) fn key_blocks(&self) -> impl Iterator<Item = Subblock> {
        let queries = self.seen_by(0..self.lanes);
        let keys = blocks_of(self.attention.t, KEYS);
        keys.filter_map(move |keys| self.part(0..self.lanes, &queries, keys))
    }

    /// The parts of few queries and the keys of a block that may see each other.
    pub(super) fn parts<'x>(&'x self, whole: &'x Subblock) -> impl Iterator<Item = Subblock> + 'x {
        blocks_of(self.queries.len(), PART).filter_map(move |queries| {
            let lanes = queries.start..self.lanes.min(queries.start + PART);
            if whole.is_seen() {
                return Some(Subblock { lanes, ..whole.clone() });
            }
            self.part(lanes.clone(), &self.seen_by(lanes), whole.keys.clone())
        })
    }

    /// Calls `f` for each part of this block of queries and a block of keys that may see each other.
    pub(super) fn for_subblocks(&self, mut f: impl FnMut(&Subblock)) {
        for whole in self.key_blocks() {
            if whole.is_seen() {
                f(&whole);
            } else {
                self.parts(&whole).for_each(|part| f(&part));
            }
        }
    }

    /// The part of some queries and those of some keys that one of them may see.
    fn part(&self, lanes: Range<usize>, seen: &SeenBy, keys: Range<usize>) -> Option<Subblock> {
        let Places { pos, seg } = self.key_places(&keys);
        let places = pos.iter().zip(seg);
        let first = places.clone().position(|(&pos, &seg)| seen.may_see(pos, seg))?;
        let last = keys.start + places.clone().rposition(|(&pos, &seg)| seen.may_see(pos, seg))?;
        let all = places.skip(first).take_while(|&(&pos, &seg)| seen.all_see(pos, seg)).count();
        let first = keys.start + first;
        Some(Subblock { lanes, keys: first..last + 1, hidden: (first + all).min(last + 1) })
    }

    /// Positions and segments that some queries see.
    fn seen_by(&self, lanes: Range<usize>) -> SeenBy {
        let places = self.query_places(&lanes);
        let some = if self.attention.causal { bounds(places.pos) } else { [i32::MAX; 2] };
        SeenBy { positions: some, reach: self.attention.reach(), segments: bounds(places.seg) }
    }

    /// Scores of a part: a row of its lanes for each key. Keys that are not seen get negative infinity.
    pub(super) fn scores(&self, part: &Subblock, queries: Columns<'_>, scores: &mut [f32]) {
        let Attention { d, scale, .. } = *self.attention;
        self.products(part, self.of_keys(part, self.x.k, d), queries, d, scale, scores);
        self.bound_and_hide(part, 1.0, scores);
    }

    /// Bounds scores, `scale` times those that are given, if there is a bound, and hides keys that are not seen. Returns the factor of the
    /// scores that are now stored: without a bound they are not scaled.
    pub(super) fn bound_and_hide(&self, part: &Subblock, scale: f32, scores: &mut [f32]) -> f32 {
        let Attention { causal, softcap, .. } = *self.attention;
        if let Some(softcap) = softcap {
            bound_scores(scores, scale, softcap);
        }
        if !part.is_seen() {
            let lanes = part.lanes.len();
            let hidden = part.hidden..part.keys.end;
            let scores = &mut scores[(hidden.start - part.keys.start) * lanes..];
            let places = [self.query_places(&part.lanes), self.key_places(&hidden)];
            mask(scores, lanes, places, causal, self.attention.reach());
        }
        if softcap.is_some() { 1.0 } else { scale }
    }

    /// `out = scale a b` for `a` a row per key and `b` of columns of `width` elements, in rows of the part's lanes.
    pub(super) fn products(
        &self,
        part: &Subblock,
        a: Matrix<Floats>,
        b: Columns<'_>,
        width: usize,
        scale: f32,
        out: &mut [f32],
    ) {
        let (b, lanes) = (b.part(&part.lanes), part.lanes.len());
        if b.count < lanes {
            out.fill(0.0);
        }
        let size = [part.keys.len(), b.count, width];
        let to = Matrix::rows(out.as_mut_ptr(), lanes);
        // SAFETY: `out` is a slice of rows of `lanes`, borrowed for writing.
        unsafe { multiply(size, a, b.matrix, to, scale, false, 1) };
    }

    /// Factors by which dropout multiplies the weights of a part: a row of its lanes for each key.
    pub(super) fn factors<'x>(&self, part: &Subblock, dropout: &Dropout, factors: &'x mut [f32]) -> &'x [f32] {
        let Head([b, g, r]) = self.head;
        let (m, lanes) = (part.keys.len(), part.lanes.len());
        let factors = &mut factors[..m * lanes];
        for first in part.lanes.clone().step_by(LANES) {
            let mut drawn = [[0.0; KEYS]; LANES];
            for (i, drawn) in (first..self.queries.len()).zip(&mut drawn) {
                let start = dropout.counter([b, self.queries.start + i, g, r, part.keys.start]);
                drop_run((&[1.0; KEYS][..m]).into(), &mut drawn[..m], dropout.p, dropout.key, start);
            }
            interleave(&drawn, factors, lanes, first - part.lanes.start);
        }
        factors
    }

    fn query_places(&self, lanes: &Range<usize>) -> Places<'_> {
        let first = self.head.0[0] * self.attention.s + self.queries.start;
        let range = first + lanes.start..first + lanes.end.min(self.queries.len());
        Places { pos: &self.x.qpos[range.clone()], seg: &self.x.qseg[range] }
    }

    fn key_places(&self, keys: &Range<usize>) -> Places<'_> {
        let first = self.head.0[0] * self.attention.t;
        let range = first + keys.start..first + keys.end;
        Places { pos: &self.x.kpos[range.clone()], seg: &self.x.kseg[range] }
    }
}

/// How far queries see back.
#[derive(Clone, Copy)]
pub(super) enum Reach {
    /// To the first position.
    All,
    /// By a number of positions.
    Window(i32),
    /// To the start of their chunk, of this number of positions.
    Chunk(i32),
}

impl Reach {
    /// The first position that a query at a position sees; a later query has no earlier one.
    #[inline(always)]
    fn first(self, pos: i32) -> i32 {
        match self {
            Reach::All => i32::MIN,
            Reach::Window(back) => pos.saturating_sub(back),
            Reach::Chunk(size) => pos.saturating_sub(pos.rem_euclid(size)),
        }
    }
}

/// Bounds of what some queries see: keys up to their positions, not too far back, of their segments.
struct SeenBy {
    /// The least and the greatest position.
    positions: [i32; 2],
    /// How far they see back.
    reach: Reach,
    /// The least and the greatest segment.
    segments: [i32; 2],
}

impl SeenBy {
    /// True if one of the queries may see the key of a position and a segment.
    fn may_see(&self, pos: i32, seg: i32) -> bool {
        let [first, last] = self.positions;
        pos <= last && pos >= self.reach.first(first) && (self.segments[0]..=self.segments[1]).contains(&seg)
    }

    /// True if each of them sees it.
    fn all_see(&self, pos: i32, seg: i32) -> bool {
        let [first, last] = self.positions;
        pos <= first && pos >= self.reach.first(last) && self.segments == [seg; 2]
    }
}

/// Elements of scratch memory for the factors of a block of `lanes` queries: none without dropout.
pub(super) fn factors_size(attention: &Attention, lanes: usize) -> usize {
    if attention.dropout.is_some() { KEYS * lanes } else { 0 }
}

/// Elements of scratch memory for the weights of a block of `lanes` queries in bf16: none if they stay in f32.
pub(super) fn bf16_size(in_bf16: bool, lanes: usize) -> usize {
    if in_bf16 { KEYS * lanes / 2 } else { 0 }
}

/// Weights as the products read them: rounded to bf16 in the scratch memory, or in f32 where there is none.
pub(super) fn as_operand<'x>(weights: &'x [f32], space: &'x mut [f32]) -> Floats<'x> {
    if space.is_empty() {
        return weights.into();
    }
    let bytes = &mut bytes_of(space)[..2 * weights.len()];
    round_part(Narrow::Bf16, weights, bytes);
    Floats::Narrow(Narrow::Bf16, bytes)
}

/// Cuts the start of `scratch` into slices of the given sizes.
pub(super) fn carve<const N: usize>(mut scratch: &mut [f32], sizes: [usize; N]) -> [&mut [f32]; N] {
    sizes.map(|size| {
        let (taken, rest) = std::mem::take(&mut scratch).split_at_mut(size);
        scratch = rest;
        taken
    })
}

simd! {
    /// The least and the greatest; of nothing, bounds that no number meets.
    fn bounds(x: &[i32]) -> [i32; 2] {
        let (mut low, mut high) = (i32::MAX, i32::MIN);
        for &v in x {
            low = low.min(v);
            high = high.max(v);
        }
        [low, high]
    }

    /// `x *= factors`
    pub(super) fn multiply_by(x: &mut [f32], factors: &[f32]) {
        for (x, &factor) in x.iter_mut().zip(factors) {
            *x *= factor;
        }
    }

    /// Writes the rows as columns from `first` on of rows of `lanes`.
    fn interleave(rows: &[[f32; KEYS]; LANES], out: &mut [f32], lanes: usize, first: usize) {
        for (j, out) in out.chunks_exact_mut(lanes).enumerate() {
            for (out, row) in out[first..first + LANES].iter_mut().zip(rows) {
                *out = row[j];
            }
        }
    }

    /// `x = softcap tanh(scale x / softcap)`
    fn bound_scores(x: &mut [f32], scale: f32, softcap: f32) {
        for x in x {
            *x = softcap * tanh::<FMA>(scale * *x / softcap);
        }
    }

    fn mask(scores: &mut [f32], lanes: usize, places: [Places<'_>; 2], causal: bool, reach: Reach) {
        let [queries, keys] = places;
        let mut firsts = [i32::MIN; QUERIES];
        for (first, &pos) in firsts.iter_mut().zip(queries.pos) {
            *first = reach.first(pos);
        }
        let rows = scores.chunks_exact_mut(lanes).zip(keys.pos.iter().zip(keys.seg));
        for (row, (&pos, &seg)) in rows {
            // Without causality, a position before all others.
            let pos = if causal { pos } else { i32::MIN };
            for (((score, &q_pos), &q_seg), &first) in row.iter_mut().zip(queries.pos).zip(queries.seg).zip(&firsts) {
                let sees = q_seg == seg && pos <= q_pos && pos >= first;
                *score = if sees { *score } else { f32::NEG_INFINITY };
            }
        }
    }
}
