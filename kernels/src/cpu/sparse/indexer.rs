//! The scores of an indexer at chosen keys, and their gradient.

use super::{BLOCK, Load, Table, carve, part, picks, product, share};
use crate::cpu::Par;
use crate::cpu::matrix::{Matrix, Target};
use std::ops::Range;

/// The sizes of an indexer: queries `q [b, s, n, d]`, keys `k [b, t, d]`, weights `w [b, s, n]`, choices `[b, s, j]`.
#[derive(Clone, Copy, Debug)]
pub struct Indexer {
    /// Sequences.
    pub b: usize,
    /// Queries of a sequence.
    pub s: usize,
    /// Keys of a sequence.
    pub t: usize,
    /// Heads.
    pub n: usize,
    /// Elements of a head.
    pub d: usize,
    /// Choices of a query.
    pub j: usize,
}

/// Queries, keys and weights of an indexer.
#[derive(Clone, Copy, Debug)]
pub struct IndexerInputs<'a> {
    /// Queries.
    pub q: &'a [f32],
    /// Keys.
    pub k: &'a [f32],
    /// Weights of heads.
    pub w: &'a [f32],
}

/// The gradients of queries, keys and weights.
#[derive(Debug)]
pub struct Cotangents<'a> {
    /// By the queries.
    pub dq: &'a mut [f32],
    /// By the keys.
    pub dk: &'a mut [f32],
    /// By the weights.
    pub dw: &'a mut [f32],
}

impl Indexer {
    /// Checks the sizes of queries, keys, weights and choices.
    pub(super) fn check(&self, x: IndexerInputs<'_>, index: &[i32]) {
        let IndexerInputs { q, k, w } = x;
        let Indexer { b, s, t, n, d, j } = *self;
        assert_eq!([q.len(), k.len(), w.len()], [b * s * n * d, b * t * d, b * s * n], "q, k and w");
        assert_eq!(index.len(), b * s * j, "choices");
    }

    /// The rows of queries of one query token.
    fn queries<'a>(&self, q: &'a [f32], query: usize) -> Matrix<&'a [f32]> {
        Matrix::rows(&q[query * self.n * self.d..], self.d)
    }

    fn keys<'a>(&self, k: &'a [f32], query: usize) -> Table<'a> {
        Table { data: k, width: self.d, stride: self.d, start: query / self.s * self.t * self.d }
    }

    /// `scores[b, s, j] = sum_n w_n relu(q_n k)` at each choice; 0 where none is named.
    ///
    /// # Panics
    /// If a slice has not its size.
    pub fn scores(&self, x: IndexerInputs<'_>, index: &[i32], scores: &mut [f32], par: Par, scratch: &mut Vec<f32>) {
        let Indexer { b, s, n, d, j, t } = *self;
        let IndexerInputs { q, k, w } = x;
        self.check(x, index);
        assert_eq!(scores.len(), index.len(), "a score a choice");
        let target = Target(scores.as_mut_ptr());
        let load = Load { units: b * s, flops: 2 * n * d * j, scratch: j * (d + n) };
        share(load, par, scratch, &|query, scratch| {
            let [keys, products] = carve(scratch, [j * d, j * n]);
            let row = &index[query * j..][..j];
            let count = self.keys(k, query).gather(picks(row, 0..t), keys);
            product([count, n, d], Matrix::rows(keys, d), self.queries(q, query).transposed(), products, 1.0);
            // SAFETY: a row of scores is one thread's.
            let scores = unsafe { part(target, query * j, j) };
            scores.fill(0.0);
            for (pick, products) in picks(row, 0..t).zip(products.chunks_exact(n.max(1))) {
                let terms = products.iter().zip(&w[query * n..]);
                scores[pick.place] = terms.map(|(product, w)| w * product.max(0.0)).sum();
            }
        });
    }

    /// The gradients of the scores.
    ///
    /// # Panics
    /// If a slice has not its size.
    pub fn gradient(
        &self,
        x: IndexerInputs<'_>,
        index: &[i32],
        dscores: &[f32],
        gradients: Cotangents<'_>,
        par: Par,
        scratch: &mut Vec<f32>,
    ) {
        let Indexer { b, s, t, n, d, j } = *self;
        let IndexerInputs { q, k, w } = x;
        self.check(x, index);
        let Cotangents { dq, dk, dw } = gradients;
        assert_eq!([dq.len(), dk.len(), dw.len()], [q.len(), k.len(), w.len()], "gradients");
        assert_eq!(dscores.len(), index.len(), "a cotangent a choice");
        let slopes = Slopes { indexer: self, x, index, dscores };
        let [dq, dk, dw] = [dq, dk, dw].map(|x| Target(x.as_mut_ptr()));
        let sizes = [j * d, j * n, n.max(j) * d];
        let by_query = Load { units: b * s, flops: 4 * n * d * j, scratch: sizes.iter().sum() };
        share(by_query, par, scratch, &|query, scratch| {
            let [keys, products, _] = carve(scratch, sizes);
            // SAFETY: the rows of a query are one thread's.
            let (dq, dw) = unsafe { (part(dq, query * n * d, n * d), part(dw, query * n, n)) };
            dw.fill(0.0);
            let count = slopes.of(query, 0..t, keys, products, |head, term| dw[head] += term);
            let products = Matrix::rows(&*products, n).transposed();
            product([n, d, count], products, Matrix::rows(keys, d), dq, 1.0);
        });
        let blocks = t.div_ceil(BLOCK);
        let by_block = Load { units: b * blocks, flops: s * 4 * n * d * j, ..by_query };
        share(by_block, par, scratch, &|unit, scratch| {
            let [keys, products, sums] = carve(scratch, sizes);
            let (sample, first) = (unit / blocks, unit % blocks * BLOCK);
            let range = first..t.min(first + BLOCK);
            let at = (sample * t + first) * d;
            // SAFETY: a block of keys is one thread's.
            unsafe { part(dk, at, range.len() * d) }.fill(0.0);
            for query in sample * s..(sample + 1) * s {
                let count = slopes.of(query, range.clone(), keys, products, |_, _| {});
                product([count, d, n], Matrix::rows(&*products, n), self.queries(q, query), sums, 1.0);
                let picks = picks(&index[query * j..][..j], range.clone());
                // SAFETY: as above.
                unsafe { self.keys(k, query).scatter_add(picks, sums, dk) };
            }
        });
    }
}

/// The cotangents of products of queries and keys.
struct Slopes<'a> {
    indexer: &'a Indexer,
    x: IndexerInputs<'a>,
    index: &'a [i32],
    dscores: &'a [f32],
}

impl Slopes<'_> {
    /// Gathers the keys of a query in a range, makes a row of cotangents by head of each, and gives their number. `weigh` gets the
    /// terms of the cotangents of weights.
    fn of(
        &self,
        query: usize,
        range: Range<usize>,
        keys: &mut [f32],
        products: &mut [f32],
        mut weigh: impl FnMut(usize, f32),
    ) -> usize {
        let (Indexer { n, d, j, .. }, IndexerInputs { q, k, w }) = (*self.indexer, self.x);
        let row = &self.index[query * j..][..j];
        let count = self.indexer.keys(k, query).gather(picks(row, range.clone()), keys);
        let queries = self.indexer.queries(q, query).transposed();
        product([count, n, d], Matrix::rows(&*keys, d), queries, products, 1.0);
        let weights = &w[query * n..][..n];
        for (pick, products) in picks(row, range).zip(products.chunks_exact_mut(n.max(1))) {
            let slope = self.dscores[query * j + pick.place];
            for (head, product) in products.iter_mut().enumerate() {
                weigh(head, slope * product.max(0.0));
                *product = if *product > 0.0 { slope * weights[head] } else { 0.0 };
            }
        }
        count
    }
}
