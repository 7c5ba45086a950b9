//! A chunk of rows of a head, and what both passes compute of it.

use super::pairs::{factors, multiply_by, product, scaled_rows, substitute, weighted_products};
use super::{Head, Inputs, Recurrence, Scan};
use crate::cpu::matrix::Matrix;

/// A chunk of rows of a head. All matrices have contiguous rows.
pub(super) struct Chunk<'s> {
    pub(super) scan: &'s Scan,
    /// Its rows.
    pub(super) n: usize,
    /// Columns of states: those of values, and further ones to which rows add nothing.
    pub(super) c: usize,
    /// Queries times the scale, and keys: `[n, k]`.
    pub(super) q: &'s mut [f32],
    pub(super) key: &'s mut [f32],
    /// Values `[n, c]`.
    pub(super) v: &'s mut [f32],
    /// Beta of each row, 1 without the delta rule.
    pub(super) beta: &'s mut [f32],
    /// The factor of each row, or of each element of its key.
    pub(super) a: &'s mut [f32],
    /// The factors from the begin of the chunk to a row, this included.
    pub(super) e: &'s mut [f32],
    /// The factors from behind a row to the end of the chunk.
    pub(super) f: &'s mut [f32],
    /// The factors between rows `[n, n]`, if a head has one decay.
    pub(super) between: &'s mut [f32],
    /// Products of queries and keys times the factors between them `[n, n]`, 0 above the diagonal.
    pub(super) p: &'s mut [f32],
    /// Those of keys and keys, 0 on the diagonal too; only with the delta rule.
    pub(super) m: &'s mut [f32],
    /// Additions of rows to the state, `[n, c]`.
    pub(super) x: &'s mut [f32],
    /// The same without beta: values without what the state has for the keys `[n, c]`; only with the delta rule.
    pub(super) rest: &'s mut [f32],
    /// Queries or keys times their factors `[n, k]`, space for a row of keys.
    pub(super) space: &'s mut [f32],
    pub(super) row: &'s mut [f32],
}

/// Elements of scratch memory of a chunk with states of `c` columns.
pub(super) fn size(scan: &Scan, c: usize) -> usize {
    sizes(scan, c).iter().sum()
}

fn sizes(scan: &Scan, c: usize) -> [usize; 14] {
    let (n, w) = (scan.rows(), scan.decays());
    let (keys, values, pairs, decays) = (n * scan.k, n * c, n * n, n * w);
    [keys, keys, values, n, decays, decays, decays, pairs, pairs, pairs, values, values, keys, scan.k]
}

impl<'s> Chunk<'s> {
    /// Takes its memory from scratch memory, and returns the rest.
    pub(super) fn carve(scan: &'s Scan, c: usize, scratch: &'s mut [f32]) -> (Chunk<'s>, &'s mut [f32]) {
        let mut left = scratch;
        let [q, key, v, beta, a, e, f, between, p, m, x, rest, space, row] =
            sizes(scan, c).map(|size| take(&mut left, size));
        (Chunk { scan, n: 0, c, q, key, v, beta, a, e, f, between, p, m, x, rest, space, row }, left)
    }

    /// Reads the rows from `from` on, and computes the products of pairs of them.
    pub(super) fn load(&mut self, inputs: &Inputs<'_>, head: Head, from: usize) {
        self.read(inputs, head, from);
        self.pair_queries();
        self.pair_keys();
    }

    /// Reads the rows from `from` on.
    pub(super) fn read(&mut self, inputs: &Inputs<'_>, head: Head, from: usize) {
        let (scan, n) = (self.scan, self.scan.chunk.min(self.scan.s - from));
        let (k, c, w) = (scan.k, scan.c, scan.decays());
        self.n = n;
        for i in 0..n {
            let (of_keys, of_values) = (scan.of_keys(head, from + i), scan.of_values(head, from + i));
            let queries = &inputs.q[of_keys..][..k];
            self.q[i * k..][..k].iter_mut().zip(queries).for_each(|(q, x)| *q = scan.scale * x);
            self.key[i * k..][..k].copy_from_slice(&inputs.k[of_keys..][..k]);
            let (values, further) = self.v[i * self.c..][..self.c].split_at_mut(c);
            values.copy_from_slice(&inputs.v[of_values * c..][..c]);
            further.fill(0.0);
            self.beta[i] = if scan.kind == Recurrence::Delta { inputs.further[of_values] } else { 1.0 };
            let begins = inputs.pos[head.b * scan.s + from + i] == 0;
            let decays = &inputs.decay[of_values * w..][..w];
            self.a[i * w..][..w].iter_mut().zip(decays).for_each(|(a, x)| *a = if begins { 0.0 } else { x.exp() });
        }
        self.accumulate_factors(w);
        if !scan.by_key {
            factors(&self.a[..n], self.between);
        }
    }

    /// The factors from the begin to each row, and from each row to the end.
    fn accumulate_factors(&mut self, w: usize) {
        let (n, last) = (self.n, (self.n - 1) * w);
        self.e[..w].copy_from_slice(&self.a[..w]);
        self.f[last..][..w].fill(1.0);
        for i in 1..n {
            let (before, row) = self.e.split_at_mut(i * w);
            row[..w].copy_from_slice(&before[(i - 1) * w..]);
            multiply_by(&mut row[..w], &self.a[i * w..][..w]);
            let (row, behind) = self.f.split_at_mut((n - i) * w);
            let row = &mut row[(n - i - 1) * w..];
            row.copy_from_slice(&behind[..w]);
            multiply_by(row, &self.a[(n - i) * w..][..w]);
        }
    }

    /// The products of queries and keys.
    pub(super) fn pair_queries(&mut self) {
        let (n, k) = (self.n, self.scan.k);
        if self.scan.by_key {
            return weighted_products(self.q, self.key, &self.a[..n * k], k, self.row, self.p);
        }
        let keys = Matrix::rows(&*self.key, k).transposed();
        product([n, n, k], Matrix::rows(&*self.q, k), keys, self.p, 1.0, false);
        multiply_by(&mut self.p[..n * n], &self.between[..n * n]);
    }

    /// The products of keys and keys, which the delta rule has.
    pub(super) fn pair_keys(&mut self) {
        let (n, k) = (self.n, self.scan.k);
        if self.scan.kind != Recurrence::Delta {
            return;
        }
        if self.scan.by_key {
            weighted_products(self.key, self.key, &self.a[..n * k], k, self.row, self.m);
        } else {
            let keys = Matrix::rows(&*self.key, k);
            product([n, n, k], keys, keys.transposed(), self.m, 1.0, false);
            multiply_by(&mut self.m[..n * n], &self.between[..n * n]);
        }
        (0..n).for_each(|i| self.m[i * n + i] = 0.0);
    }

    /// Additions of the rows to the state, given the state before them.
    pub(super) fn add(&mut self, state: &[f32]) {
        let (n, k, c) = (self.n, self.scan.k, self.c);
        if self.scan.kind != Recurrence::Delta {
            self.x[..n * c].copy_from_slice(&self.v[..n * c]);
            return;
        }
        scaled_rows(&self.key[..n * k], &self.e[..n * self.scan.decays()], k, self.space);
        product([n, c, k], Matrix::rows(&*self.space, k), Matrix::rows(state, c), self.rest, 1.0, false);
        for (rest, &v) in self.rest[..n * c].iter_mut().zip(&*self.v) {
            *rest = v - *rest;
        }
        substitute(&self.m[..n * n], &self.beta[..n], c, &mut self.rest[..n * c], &mut self.x[..n * c]);
    }

    /// The state behind the rows in place of that before them.
    pub(super) fn advance(&mut self, state: &mut [f32]) {
        let (n, k, c) = (self.n, self.scan.k, self.c);
        self.decay(state);
        scaled_rows(&self.key[..n * k], &self.f[..n * self.scan.decays()], k, self.space);
        let keys = Matrix::rows(&*self.space, k).transposed();
        product([k, c, n], keys, Matrix::rows(&*self.x, c), state, 1.0, true);
    }

    /// Multiplies a state by the factors of all rows.
    pub(super) fn decay(&self, state: &mut [f32]) {
        let through = self.through();
        for (i, row) in state.chunks_exact_mut(self.c).enumerate() {
            let by = through[i % through.len()];
            row.iter_mut().for_each(|x| *x *= by);
        }
    }

    /// The factors of all rows.
    pub(super) fn through(&self) -> &[f32] {
        let w = self.scan.decays();
        &self.e[(self.n - 1) * w..][..w]
    }

    /// The gradient by what rows add, of those by the results of the rows and by the state behind them.
    pub(super) fn by_added(&mut self, out: &[f32], state: &[f32], x: &mut [f32]) {
        let (n, k, c) = (self.n, self.scan.k, self.c);
        scaled_rows(&self.key[..n * k], &self.f[..n * self.scan.decays()], k, self.space);
        product([n, c, k], Matrix::rows(&*self.space, k), Matrix::rows(state, c), x, 1.0, false);
        product([n, c, n], Matrix::rows(&*self.p, n).transposed(), Matrix::rows(out, c), x, 1.0, true);
    }

    /// The gradient by the state before the rows in place of that behind them; `x` has that by what rows add, without beta.
    pub(super) fn step_back(&mut self, out: &[f32], x: &[f32], state: &mut [f32]) {
        let (n, k, c) = (self.n, self.scan.k, self.c);
        self.decay(state);
        let e = &self.e[..n * self.scan.decays()];
        scaled_rows(&self.q[..n * k], e, k, self.space);
        let queries = Matrix::rows(&*self.space, k).transposed();
        product([k, c, n], queries, Matrix::rows(out, c), state, 1.0, true);
        if self.scan.kind == Recurrence::Delta {
            scaled_rows(&self.key[..n * k], e, k, self.space);
            let keys = Matrix::rows(&*self.space, k).transposed();
            product([k, c, n], keys, Matrix::rows(x, c), state, -1.0, true);
        }
    }
}

/// The first elements of the memory that is left.
pub(super) fn take<'s>(rest: &mut &'s mut [f32], size: usize) -> &'s mut [f32] {
    let (taken, others) = std::mem::take(rest).split_at_mut(size);
    *rest = others;
    taken
}
