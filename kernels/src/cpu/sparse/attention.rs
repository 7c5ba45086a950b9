//! Attention to chosen keys, its gradient, and the mass of each chosen key.

use super::{BLOCK, Load, Table, carve, part, picks, product, share};
use crate::cpu::Par;
use crate::cpu::math::{exp, ln};
use crate::cpu::matrix::{Matrix, Target};
use crate::cpu::simd::{max, simd, sum2};
use std::ops::Range;

/// The sizes of an attention: `q [b, s, g, r, d]`, `k [b, t, g, d]`, `v [b, t, g, c]`, choices `[b, s, j]`.
#[derive(Clone, Copy, Debug)]
pub struct ChosenAttention {
    /// Sequences.
    pub b: usize,
    /// Queries of a sequence.
    pub s: usize,
    /// Keys of a sequence.
    pub t: usize,
    /// Key heads.
    pub g: usize,
    /// Query heads of a key head.
    pub r: usize,
    /// Elements of a query or key.
    pub d: usize,
    /// Elements of a value.
    pub c: usize,
    /// Choices of a query.
    pub j: usize,
    /// The factor of the products of queries and keys.
    pub scale: f32,
}

/// Queries, keys, values and choices.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Queries.
    pub q: &'a [f32],
    /// Keys.
    pub k: &'a [f32],
    /// Values; none for the mass of keys.
    pub v: &'a [f32],
    /// Choices.
    pub index: &'a [i32],
}

/// Results of the forward, and the gradient of the first one.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a> {
    /// The result.
    pub out: &'a [f32],
    /// The log-sum-exp.
    pub lse: &'a [f32],
    /// The gradient by the result.
    pub dout: &'a [f32],
}

/// The gradients.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// By the queries.
    pub dq: &'a mut [f32],
    /// By the keys.
    pub dk: &'a mut [f32],
    /// By the values.
    pub dv: &'a mut [f32],
}

/// A query token, and a key head.
#[derive(Clone, Copy)]
struct Head {
    query: usize,
    group: usize,
}

impl ChosenAttention {
    fn check(&self, x: &Inputs<'_>) {
        let ChosenAttention { b, s, t, g, r, d, j, .. } = *self;
        assert_eq!([x.q.len(), x.k.len(), x.index.len()], [b * s * g * r * d, b * t * g * d, b * s * j], "q, k, index");
    }

    /// Keys or values of a head, in rows of `width`.
    fn table<'a>(&self, data: &'a [f32], width: usize, at: Head) -> Table<'a> {
        let start = (at.query / self.s * self.t * self.g + at.group) * width;
        Table { data, width, stride: self.g * width, start }
    }

    /// The first row of a head among those of all query heads.
    fn row(&self, Head { query, group }: Head) -> usize {
        (query * self.g + group) * self.r
    }

    fn choices<'a>(&self, index: &'a [i32], query: usize) -> &'a [i32] {
        &index[query * self.j..][..self.j]
    }

    /// `out = softmax(scale q k) v` over chosen keys, and the log-sum-exp. A query without a key gets zeros and negative infinity.
    ///
    /// # Panics
    /// If a slice has not its size.
    pub fn forward(&self, x: &Inputs<'_>, out: &mut [f32], lse: &mut [f32], par: Par, scratch: &mut Vec<f32>) {
        let ChosenAttention { b, s, t, g, r, d, c, j, scale } = *self;
        self.check(x);
        assert_eq!([x.v.len(), out.len(), lse.len()], [b * t * g * c, b * s * g * r * c, b * s * g * r], "v, out, lse");
        let [out, lse] = [out, lse].map(|x| Target(x.as_mut_ptr()));
        let load = Load { units: b * s * g, flops: 2 * r * j * (d + c), scratch: j * (d + c + r) };
        share(load, par, scratch, &|unit, scratch| {
            let at = Head { query: unit / g, group: unit % g };
            let [keys, values, weights] = carve(scratch, [j * d, j * c, r * j]);
            let row = self.choices(x.index, at.query);
            let count = self.table(x.k, d, at).gather(picks(row, 0..t), keys);
            self.table(x.v, c, at).gather(picks(row, 0..t), values);
            let first = self.row(at);
            // SAFETY: the rows of a head are one thread's.
            let (out, lse) = unsafe { (part(out, first * c, r * c), part(lse, first, r)) };
            let queries = Matrix::rows(&x.q[first * d..], d);
            product([r, count, d], queries, Matrix::rows(&*keys, d).transposed(), weights, scale);
            softmax_rows(&mut weights[..r * count], count, lse);
            product([r, c, count], Matrix::rows(&*weights, count), Matrix::rows(&*values, c), out, 1.0);
        });
    }

    /// `mass[b, s, j]`, the weights `e^(scale q k - lse)` summed over heads; 0 where no key is named.
    ///
    /// # Panics
    /// If a slice has not its size.
    pub fn mass(&self, x: &Inputs<'_>, lse: &[f32], mass: &mut [f32], par: Par, scratch: &mut Vec<f32>) {
        let ChosenAttention { b, s, t, g, r, d, j, scale, .. } = *self;
        self.check(x);
        assert_eq!([lse.len(), mass.len()], [b * s * g * r, b * s * j], "lse, mass");
        let mass = Target(mass.as_mut_ptr());
        let load = Load { units: b * s, flops: 2 * g * r * j * d, scratch: j * (d + r) };
        share(load, par, scratch, &|query, scratch| {
            let [keys, weights] = carve(scratch, [j * d, r * j]);
            let row = self.choices(x.index, query);
            // SAFETY: a row of choices is one thread's.
            let mass = unsafe { part(mass, query * j, j) };
            mass.fill(0.0);
            for group in 0..g {
                let at = Head { query, group };
                let count = self.table(x.k, d, at).gather(picks(row, 0..t), keys);
                let first = self.row(at);
                let queries = Matrix::rows(&x.q[first * d..], d);
                product([r, count, d], queries, Matrix::rows(&*keys, d).transposed(), weights, scale);
                let weights = &mut weights[..r * count];
                exponentials(weights, count, &lse[first..][..r]);
                for (number, pick) in picks(row, 0..t).enumerate() {
                    mass[pick.place] += weights[number..].iter().step_by(count).sum::<f32>();
                }
            }
        });
    }

    /// The gradients. Threads share queries for dq, and blocks of keys for dk and dv.
    ///
    /// # Panics
    /// If a slice has not its size.
    pub fn backward(
        &self,
        x: &Inputs<'_>,
        saved: &Saved<'_>,
        gradients: Gradients<'_>,
        par: Par,
        scratch: &mut Vec<f32>,
    ) {
        let ChosenAttention { b, s, t, g, r, d, c, j, .. } = *self;
        self.check(x);
        let Gradients { dq, dk, dv } = gradients;
        assert_eq!([dq.len(), dk.len(), dv.len()], [x.q.len(), x.k.len(), x.v.len()], "dq, dk and dv");
        let rows = b * s * g * r;
        assert_eq!([saved.out.len(), saved.dout.len(), saved.lse.len()], [rows * c, rows * c, rows], "out, dout, lse");
        let [dq, dk, dv] = [dq, dk, dv].map(|x| Target(x.as_mut_ptr()));
        let slopes = Slopes { attention: self, x, saved };
        let sizes = [j * d, j * c, r * j, r * j, j * d.max(c)];
        let by_query = Load { units: b * s * g, flops: 2 * r * j * (2 * d + c), scratch: sizes.iter().sum() };
        share(by_query, par, scratch, &|unit, scratch| {
            let at = Head { query: unit / g, group: unit % g };
            let [keys, values, weights, scores, _] = carve(scratch, sizes);
            let count = slopes.of(at, 0..t, Gathered { keys, values, weights, scores });
            // SAFETY: the rows of a head are one thread's.
            let dq = unsafe { part(dq, self.row(at) * d, r * d) };
            product([r, d, count], Matrix::rows(&*scores, count), Matrix::rows(&*keys, d), dq, 1.0);
        });
        let blocks = t.div_ceil(BLOCK);
        let by_block = Load { units: b * g * blocks, flops: s * 4 * r * j * (d + c), ..by_query };
        share(by_block, par, scratch, &|unit, scratch| {
            let (sample, group, first) = (unit / blocks / g, unit / blocks % g, unit % blocks * BLOCK);
            let range = first..t.min(first + BLOCK);
            let [keys, values, weights, scores, sums] = carve(scratch, sizes);
            for (to, width) in [(dk, d), (dv, c)] {
                let rows = range.clone().map(|key| ((sample * t + key) * g + group) * width);
                // SAFETY: the rows of a block of keys are one thread's.
                rows.for_each(|at| unsafe { part(to, at, width) }.fill(0.0));
            }
            for query in sample * s..(sample + 1) * s {
                let at = Head { query, group };
                let count = slopes.of(at, range.clone(), Gathered { keys, values, weights, scores });
                let row = self.choices(x.index, query);
                for (to, data, width, of, source) in [(dk, x.k, d, &*scores, x.q), (dv, x.v, c, &*weights, saved.dout)]
                {
                    let rows = Matrix::rows(&source[self.row(at) * width..], width);
                    product([count, width, r], Matrix::rows(of, count).transposed(), rows, sums, 1.0);
                    // SAFETY: as above.
                    unsafe { self.table(data, width, at).scatter_add(picks(row, range.clone()), sums, to) };
                }
            }
        });
    }
}

/// Scratch memory of a query: rows of its keys and values, and for each query head weights and cotangents of scores.
struct Gathered<'a> {
    keys: &'a mut [f32],
    values: &'a mut [f32],
    weights: &'a mut [f32],
    scores: &'a mut [f32],
}

/// Weights of a head's keys and the cotangents of their scores.
struct Slopes<'a> {
    attention: &'a ChosenAttention,
    x: &'a Inputs<'a>,
    saved: &'a Saved<'a>,
}

impl Slopes<'_> {
    /// Gathers the keys and values of a query in a range, makes their weights and the cotangents of products, a row for each
    /// query head, and gives the number of keys.
    fn of(&self, at: Head, range: Range<usize>, to: Gathered<'_>) -> usize {
        let Gathered { keys, values, weights, scores } = to;
        let (attention, x, saved) = (self.attention, self.x, self.saved);
        let ChosenAttention { r, d, c, scale, .. } = *attention;
        let row = attention.choices(x.index, at.query);
        let count = attention.table(x.k, d, at).gather(picks(row, range.clone()), keys);
        attention.table(x.v, c, at).gather(picks(row, range), values);
        let first = attention.row(at);
        let (queries, dout) = (Matrix::rows(&x.q[first * d..], d), Matrix::rows(&saved.dout[first * c..], c));
        product([r, count, d], queries, Matrix::rows(&*keys, d).transposed(), weights, scale);
        product([r, count, c], dout, Matrix::rows(&*values, c).transposed(), scores, 1.0);
        let (weights, scores) = (&mut weights[..r * count], &mut scores[..r * count]);
        exponentials(weights, count, &saved.lse[first..][..r]);
        let (out, dout) = (&saved.out[first * c..][..r * c], &saved.dout[first * c..][..r * c]);
        cotangents([weights, out, dout], [count, c], scale, scores);
        count
    }
}

simd! {
    /// Softmaxes of rows and their log-sum-exps, negative infinity for empty rows.
    fn softmax_rows(x: &mut [f32], cols: usize, lse: &mut [f32]) {
        lse.fill(f32::NEG_INFINITY);
        for (x, lse) in x.chunks_exact_mut(cols.max(1)).zip(lse) {
            let (max, mut sum) = (max(x), 0.0);
            for x in x.iter_mut() {
                *x = exp::<FMA>(*x - max);
                sum += *x;
            }
            *lse = max + ln::<FMA>(sum);
            x.iter_mut().for_each(#[inline(always)] |x| *x /= sum);
        }
    }

    /// `e^(x - lse)` of rows.
    fn exponentials(x: &mut [f32], cols: usize, lse: &[f32]) {
        for (x, lse) in x.chunks_exact_mut(cols.max(1)).zip(lse) {
            x.iter_mut().for_each(#[inline(always)] |x| *x = exp::<FMA>(*x - lse));
        }
    }

    /// Turns products of dout and values into the cotangents `scale p (dout v - dout out)` of products of queries and keys.
    fn cotangents(x: [&[f32]; 3], size: [usize; 2], scale: f32, scores: &mut [f32]) {
        let ([weights, out, dout], [cols, c]) = (x, size);
        let rows = weights.chunks_exact(cols.max(1)).zip(scores.chunks_exact_mut(cols.max(1)));
        let outs = out.chunks_exact(c.max(1)).zip(dout.chunks_exact(c.max(1)));
        for ((weights, scores), (out, dout)) in rows.zip(outs) {
            let shared = sum2(out, dout, #[inline(always)] |a, b| a * b);
            for (score, weight) in scores.iter_mut().zip(weights) {
                *score = scale * weight * (*score - shared);
            }
        }
    }
}
