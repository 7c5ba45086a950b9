//! Products of pairs of rows of a chunk, and small matrices.

use crate::cpu::gemm::multiply;
use crate::cpu::matrix::Matrix;
use crate::cpu::simd::{simd, sum2};

/// `out = scale a b`, or that added, for contiguous rows of `out`. `size` has the rows and columns of `out`, and the columns of `a`.
pub(super) fn product(
    size: [usize; 3],
    a: Matrix<&[f32]>,
    b: Matrix<&[f32]>,
    out: &mut [f32],
    scale: f32,
    accumulate: bool,
) {
    let [m, n, k] = size;
    assert!(out.len() >= m * n, "the product is in the result");
    if m * n * k == 0 {
        if !accumulate {
            out[..m * n].fill(0.0);
        }
        return;
    }
    // SAFETY: the result has the elements, and is borrowed for writing.
    unsafe { multiply([m, n, k], a, b, Matrix::rows(out.as_mut_ptr(), n), scale, accumulate, 1) };
}

simd! {
    /// The factors between rows: `out[i, j]` is the product of `a` over `j + 1..=i`, 1 for `j = i`, 0 above the diagonal.
    pub(super) fn factors(a: &[f32], out: &mut [f32]) {
        let n = a.len();
        for i in 0..n {
            let (before, row) = out.split_at_mut(i * n);
            let row = &mut row[..n];
            row.fill(0.0);
            if i > 0 {
                for (x, &above) in row[..i].iter_mut().zip(&before[(i - 1) * n..]) {
                    *x = above * a[i];
                }
            }
            row[i] = 1.0;
        }
    }

    /// `out[i, j] = x[i] . y[j]` by the factors of each key between the rows, for `j <= i`, 0 above the diagonal. `w` is space for a row.
    pub(super) fn weighted_products(x: &[f32], y: &[f32], a: &[f32], k: usize, w: &mut [f32], out: &mut [f32]) {
        let n = a.len() / k;
        for j in 0..n {
            w.copy_from_slice(&y[j * k..(j + 1) * k]);
            for i in 0..n {
                if i < j {
                    out[i * n + j] = 0.0;
                    continue;
                }
                if i > j {
                    times(w, &a[i * k..(i + 1) * k]);
                }
                out[i * n + j] = sum2(&x[i * k..(i + 1) * k], w, #[inline(always)] |x, w| x * w);
            }
        }
    }

    /// Adds to `left[i]` the sum over `j <= i` of `m[i, j] y[j]` by the factors between the rows, and to `right[j]` that over `i >= j` of
    /// `m[i, j] x[i]`. `w` is space for a row.
    #[allow(clippy::too_many_arguments, reason = "two sums over the same pairs")]
    pub(super) fn weighted_sums(
        m: &[f32],
        x: &[f32],
        y: &[f32],
        a: &[f32],
        k: usize,
        w: &mut [f32],
        left: &mut [f32],
        right: &mut [f32],
    ) {
        let n = a.len() / k;
        for j in 0..n {
            w.fill(1.0);
            for i in j..n {
                if i > j {
                    times(w, &a[i * k..(i + 1) * k]);
                }
                let by = m[i * n + j];
                let (left, right) = (&mut left[i * k..(i + 1) * k], &mut right[j * k..(j + 1) * k]);
                let (x, y) = (&x[i * k..(i + 1) * k], &y[j * k..(j + 1) * k]);
                for at in 0..k {
                    left[at] += by * w[at] * y[at];
                    right[at] += by * w[at] * x[at];
                }
            }
        }
    }

    /// Solves `x = beta (rest - m x)` for `m` strictly below the diagonal, from the first row on: `rest` becomes the difference, `x` that
    /// times beta. Rows have `c` elements.
    pub(super) fn substitute(m: &[f32], beta: &[f32], c: usize, rest: &mut [f32], x: &mut [f32]) {
        let n = beta.len();
        for (i, &beta) in beta.iter().enumerate() {
            let (before, row) = x.split_at_mut(i * c);
            let rest = &mut rest[i * c..(i + 1) * c];
            for (j, before) in before.chunks_exact(c).enumerate() {
                subtract(rest, m[i * n + j], before);
            }
            for (x, &rest) in row.iter_mut().zip(&*rest) {
                *x = beta * rest;
            }
        }
    }

    /// The gradients of [`substitute`]: that by `x` becomes that by `rest`, and that by beta is written.
    pub(super) fn substitute_back(m: &[f32], beta: &[f32], c: usize, rest: &[f32], x: &mut [f32], by_beta: &mut [f32]) {
        let n = beta.len();
        for i in (0..n).rev() {
            let (before, row) = x.split_at_mut(i * c);
            let row = &mut row[..c];
            by_beta[i] = sum2(row, &rest[i * c..(i + 1) * c], #[inline(always)] |a, b| a * b);
            for x in row.iter_mut() {
                *x *= beta[i];
            }
            for (j, before) in before.chunks_exact_mut(c).enumerate() {
                subtract(before, m[i * n + j], row);
            }
        }
    }

    /// `x[i] *= f[i]`, rows of `k` elements, with one factor for a row or one for each element.
    pub(super) fn multiply_rows(x: &mut [f32], f: &[f32], k: usize) {
        if f.len() == x.len() {
            return times(x, f);
        }
        for (row, &f) in x.chunks_exact_mut(k).zip(f) {
            for x in row {
                *x *= f;
            }
        }
    }

    /// `x *= y`
    pub(super) fn multiply_by(x: &mut [f32], y: &[f32]) {
        times(x, y);
    }

    /// `a . b`
    pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
        sum2(a, b, #[inline(always)] |a, b| a * b)
    }
}

#[inline(always)]
fn times(x: &mut [f32], y: &[f32]) {
    for (x, &y) in x.iter_mut().zip(y) {
        *x *= y;
    }
}

#[inline(always)]
fn subtract(x: &mut [f32], by: f32, y: &[f32]) {
    for (x, &y) in x.iter_mut().zip(y) {
        *x -= by * y;
    }
}

/// `out[i] = x[i] f[i]`, as [`multiply_rows`] does it.
pub(super) fn scaled_rows(x: &[f32], f: &[f32], k: usize, out: &mut [f32]) {
    let out = &mut out[..x.len()];
    out.copy_from_slice(x);
    multiply_rows(out, f, k);
}
