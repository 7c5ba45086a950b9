//! The gradients of a head: the states before all chunks, and then the chunks in reverse.

use super::chunk::{self, Chunk, take};
use super::pairs::{dot, multiply_by, multiply_rows, product, substitute_back, weighted_sums};
use super::{Head, Inputs, Recurrence, Scan, Slopes, Targets};
use crate::cpu::matrix::Matrix;

/// Elements of scratch memory that [`head`] needs.
pub(super) fn scratch(scan: &Scan) -> usize {
    let n = scan.rows();
    let chunks = scan.s.div_ceil(scan.chunk);
    chunk::size(scan, scan.c)
        + (chunks + 2) * scan.k * scan.c
        + 2 * n * n
        + 2 * n * scan.c
        + 4 * n * scan.k
        + n
        + scan.k
}

/// The gradients of the rows of a chunk, and what they are computed from. "By" stands for a gradient by a value.
struct ChunkSlopes<'s> {
    /// By the results `[n, c]`.
    out: &'s mut [f32],
    /// By what rows add to the state `[n, c]`; with the delta rule, then by that without beta.
    x: &'s mut [f32],
    /// By products of queries and keys, and of keys and keys `[n, n]`.
    p: &'s mut [f32],
    m: &'s mut [f32],
    /// By queries, by keys that are written, and by keys that read the state `[n, k]`.
    q: &'s mut [f32],
    written: &'s mut [f32],
    read: &'s mut [f32],
    /// By the logarithms of all factors up to a row, for each row of the state `[n, k]`.
    decay: &'s mut [f32],
    /// By beta `[n]`.
    beta: &'s mut [f32],
    /// By the state behind the rows `[k, c]`.
    state: &'s mut [f32],
    /// The state behind the rows `[k, c]`.
    behind: &'s mut [f32],
    /// Sums of `decay` over rows `[k]`.
    sums: &'s mut [f32],
}

/// Adds the gradients of a head to those of its queries and keys, and writes the others.
///
/// # Safety
/// The gradients must have the sizes of the operands, and nobody else may touch the rows of this head of queries.
pub(super) unsafe fn head(scan: &Scan, x: &Inputs<'_>, head: Head, by: &Slopes<'_>, to: Targets, scratch: &mut [f32]) {
    let (mut chunk, mut rest) = Chunk::carve(scan, scan.c, scratch);
    let (n, k, c) = (scan.rows(), scan.k, scan.c);
    let chunks = scan.s.div_ceil(scan.chunk);
    let states = take(&mut rest, chunks * k * c);
    let mut slopes = ChunkSlopes {
        out: take(&mut rest, n * c),
        x: take(&mut rest, n * c),
        p: take(&mut rest, n * n),
        m: take(&mut rest, n * n),
        q: take(&mut rest, n * k),
        written: take(&mut rest, n * k),
        read: take(&mut rest, n * k),
        decay: take(&mut rest, n * k),
        beta: take(&mut rest, n),
        state: take(&mut rest, k * c),
        behind: take(&mut rest, k * c),
        sums: take(&mut rest, k),
    };
    scan.first(x, head, &mut states[..k * c]);
    for number in 1..chunks {
        let (before, state) = states.split_at_mut(number * k * c);
        let before = &before[(number - 1) * k * c..];
        chunk.load(x, head, (number - 1) * scan.chunk);
        chunk.add(before);
        state[..k * c].copy_from_slice(before);
        chunk.advance(&mut state[..k * c]);
    }
    scan.state_of(by.end, head, slopes.state);
    for number in (0..chunks).rev() {
        let from = number * scan.chunk;
        let state = &states[number * k * c..][..k * c];
        chunk.load(x, head, from);
        chunk.add(state);
        slopes.load(&chunk, head, by.out, from);
        slopes.of_added(&mut chunk, state);
        slopes.of_pairs(&chunk);
        slopes.through_states(&chunk, state);
        slopes.through_pairs(&mut chunk);
        slopes.of_decays(&chunk);
        // SAFETY: as the caller promises.
        unsafe { slopes.write(&chunk, x, head, from, to) };
        chunk.step_back(slopes.out, slopes.x, slopes.state);
    }
}

impl ChunkSlopes<'_> {
    /// Reads the gradient by the results.
    fn load(&mut self, chunk: &Chunk<'_>, head: Head, dout: &[f32], from: usize) {
        let (scan, c) = (chunk.scan, chunk.scan.c);
        for i in 0..chunk.n {
            let row = scan.of_values(head, from + i) * c;
            self.out[i * c..][..c].copy_from_slice(&dout[row..][..c]);
        }
    }

    /// By what rows add: through the results of the rows, and through the state behind them, which it computes.
    fn of_added(&mut self, chunk: &mut Chunk<'_>, state: &[f32]) {
        let (n, c) = (chunk.n, chunk.scan.c);
        self.behind.copy_from_slice(state);
        chunk.advance(self.behind);
        chunk.by_added(self.out, self.state, self.x);
        if chunk.scan.kind == Recurrence::Delta {
            let (m, beta, rest) = (&chunk.m[..n * n], &chunk.beta[..n], &chunk.rest[..n * c]);
            substitute_back(m, beta, c, rest, &mut self.x[..n * c], &mut self.beta[..n]);
        }
    }

    /// By the products of pairs of rows.
    fn of_pairs(&mut self, chunk: &Chunk<'_>) {
        let (n, c) = (chunk.n, chunk.scan.c);
        let added = Matrix::rows(&*chunk.x, c).transposed();
        product([n, n, c], Matrix::rows(&*self.out, c), added, self.p, 1.0, false);
        (0..n).for_each(|i| self.p[i * n..][i + 1..n].fill(0.0));
        if chunk.scan.kind == Recurrence::Delta {
            product([n, n, c], Matrix::rows(&*self.x, c), added, self.m, -1.0, false);
            (0..n).for_each(|i| self.m[i * n..][i..n].fill(0.0));
        }
    }

    /// By queries and keys, through the states before and behind the rows.
    fn through_states(&mut self, chunk: &Chunk<'_>, state: &[f32]) {
        let (n, k, c, w) = (chunk.n, chunk.scan.k, chunk.scan.c, chunk.scan.decays());
        let (before, behind) = (Matrix::rows(state, c).transposed(), Matrix::rows(&*self.state, c).transposed());
        product([n, k, c], Matrix::rows(&*self.out, c), before, self.q, 1.0, false);
        multiply_rows(&mut self.q[..n * k], &chunk.e[..n * w], k);
        product([n, k, c], Matrix::rows(&*chunk.x, c), behind, self.written, 1.0, false);
        multiply_rows(&mut self.written[..n * k], &chunk.f[..n * w], k);
        if chunk.scan.kind == Recurrence::Delta {
            product([n, k, c], Matrix::rows(&*self.x, c), before, self.read, -1.0, false);
            multiply_rows(&mut self.read[..n * k], &chunk.e[..n * w], k);
        } else {
            self.read[..n * k].fill(0.0);
        }
    }

    /// By queries and keys, through the products of pairs of rows.
    fn through_pairs(&mut self, chunk: &mut Chunk<'_>) {
        let (n, k, is_delta) = (chunk.n, chunk.scan.k, chunk.scan.kind == Recurrence::Delta);
        let ChunkSlopes { p, m, q, written, read, .. } = self;
        if chunk.scan.by_key {
            let a = &chunk.a[..n * k];
            weighted_sums(p, chunk.q, chunk.key, a, k, chunk.row, q, written);
            if is_delta {
                weighted_sums(m, chunk.key, chunk.key, a, k, chunk.row, read, written);
            }
            return;
        }
        let (between, keys) = (&chunk.between[..n * n], Matrix::rows(&*chunk.key, k));
        multiply_by(&mut p[..n * n], between);
        product([n, k, n], Matrix::rows(&**p, n), keys, q, 1.0, true);
        product([n, k, n], Matrix::rows(&**p, n).transposed(), Matrix::rows(&*chunk.q, k), written, 1.0, true);
        if is_delta {
            multiply_by(&mut m[..n * n], between);
            product([n, k, n], Matrix::rows(&**m, n), keys, read, 1.0, true);
            product([n, k, n], Matrix::rows(&**m, n).transposed(), keys, written, 1.0, true);
        }
    }

    /// By the logarithms of the factors up to each row. A query, and a key that reads, have those up to their row; a key that is written has
    /// those behind it, which are those up to the last row without those up to its own.
    fn of_decays(&mut self, chunk: &Chunk<'_>) {
        let (n, k, c) = (chunk.n, chunk.scan.k, chunk.scan.c);
        for at in 0..n * k {
            self.decay[at] = chunk.q[at] * self.q[at] + chunk.key[at] * (self.read[at] - self.written[at]);
        }
        for (i, x) in self.decay[(n - 1) * k..n * k].iter_mut().enumerate() {
            *x += dot(&self.state[i * c..][..c], &self.behind[i * c..][..c]);
        }
    }

    /// Writes the gradients of the rows. That by the decay of a row is a sum over the rows from it on, which ends with the chunk: over the
    /// whole sequence it would cancel.
    ///
    /// # Safety
    /// As of [`head`].
    unsafe fn write(&mut self, chunk: &Chunk<'_>, x: &Inputs<'_>, head: Head, from: usize, to: Targets) {
        let scan = chunk.scan;
        let (k, c, w) = (scan.k, scan.c, scan.decays());
        self.sums.fill(0.0);
        for i in (0..chunk.n).rev() {
            let (of_keys, of_values) = (scan.of_keys(head, from + i), scan.of_values(head, from + i));
            let begins = x.pos[head.b * scan.s + from + i] == 0;
            self.sums.iter_mut().zip(&self.decay[i * k..]).for_each(|(sum, &x)| *sum += x);
            // SAFETY: the rows are in the gradients, as the caller promises, and are this head's.
            unsafe {
                let [q, key] = [to.q, to.k].map(|to| std::slice::from_raw_parts_mut(to.0.add(of_keys), k));
                q.iter_mut().zip(&self.q[i * k..]).for_each(|(q, &x)| *q += scan.scale * x);
                let by_key = self.written[i * k..].iter().zip(&self.read[i * k..]);
                key.iter_mut().zip(by_key).for_each(|(key, (&a, &b))| *key += a + b);
                std::slice::from_raw_parts_mut(to.v.0.add(of_values * c), c).copy_from_slice(&self.x[i * c..][..c]);
                let decay = std::slice::from_raw_parts_mut(to.decay.0.add(of_values * w), w);
                match (begins, scan.by_key) {
                    (true, _) => decay.fill(0.0),
                    (false, true) => decay.copy_from_slice(self.sums),
                    (false, false) => decay[0] = self.sums.iter().sum(),
                }
                if scan.kind == Recurrence::Delta {
                    *to.further.0.add(of_values) = self.beta[i];
                }
            }
        }
    }
}
