//! Strided matrices, and batched matrix products.

use std::ops::Range;

use super::gemm::multiply;
use super::nd::{Dims, span};
use super::par::{FLOPS, Par};
use super::simd::{simd, sum2};
use crate::cpu::narrow::Floats;

/// A matrix from the start of a slice (or at a `*mut f32`), and the distances between rows and between columns.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<S> {
    pub(crate) data: S,
    pub(crate) strides: [usize; 2],
}

impl<S> Matrix<S> {
    /// A matrix of contiguous rows that start `stride` apart.
    pub(crate) fn rows(data: S, stride: usize) -> Matrix<S> {
        Matrix { data, strides: [stride, 1] }
    }

    /// The transposed matrix.
    pub(crate) fn transposed(self) -> Matrix<S> {
        Matrix { data: self.data, strides: [self.strides[1], self.strides[0]] }
    }
}

impl Matrix<*const f32> {
    /// The matrix that starts at an element of this one.
    pub(crate) fn at(self, [i, j]: [usize; 2]) -> Matrix<*const f32> {
        Matrix { data: self.data.wrapping_add(i * self.strides[0] + j * self.strides[1]), strides: self.strides }
    }
}

impl Matrix<*mut f32> {
    /// As for one to read.
    pub(crate) fn at(self, [i, j]: [usize; 2]) -> Matrix<*mut f32> {
        Matrix { data: self.data.wrapping_add(i * self.strides[0] + j * self.strides[1]), strides: self.strides }
    }
}

/// A slice that several threads write to, each in elements of its own.
#[derive(Clone, Copy)]
pub(crate) struct Target(pub(crate) *mut f32);

// SAFETY: whoever dereferences the pointer sees to it that threads write to different elements.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

/// Matrix products at several offsets of `a`, `b` and `out`.
#[derive(Clone, Debug)]
pub(crate) struct Matrices {
    /// Sizes `m`, `n`, `k`.
    pub(crate) size: [usize; 3],
    /// Strides of `a` along `m` and `k`, of `b` along `k` and `n`, of `out` along `m` and `n`.
    pub(crate) strides: [[usize; 2]; 3],
    /// Repeated for each index here; indices differ in the elements of `out` that they reach.
    pub(crate) batch: Loops,
    /// Added up over each index here.
    pub(crate) inner: Loops,
}

/// Dimensions to loop over and their strides in `a`, `b` and `out`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loops {
    pub(crate) dims: Dims,
    pub(crate) strides: [Dims; 3],
}

impl Matrices {
    /// True if the products are sums of contiguous terms, which need f32 operands.
    pub(crate) fn are_dots(&self) -> bool {
        let ([m, n, _], [a, b, _]) = (self.size, self.strides);
        (m == 1 || n == 1) && a[1] == 1 && b[0] == 1
    }

    /// Computes the products into `out`, or adds them. The operands must have the elements that sizes, strides and loops
    /// reach, none of which may be zero, and be f32 for [dots](Matrices::are_dots).
    pub(crate) fn run(&self, a: Floats, b: Floats, out: &mut [f32], accumulate: bool, par: Par) {
        let [m, n, _] = self.size;
        let last = self.batch.last(2) + span(&[m, n], &self.strides[2]) - 1;
        assert!(last < out.len(), "the products lie in the result");
        let target = Target(out.as_mut_ptr());
        let count = self.batch.count();
        let work = self.work();
        let threads = par.threads(work.saturating_mul(count));
        if count < threads {
            return self.repeat(0..count, a, b, target, accumulate, threads);
        }
        par.rows(count, work, (), &|range, ()| self.repeat(range, a, b, target, accumulate, 1));
    }

    /// Units of work of the products of one index of the batch.
    fn work(&self) -> usize {
        (2 * self.size.iter().product::<usize>() * self.inner.count()).div_ceil(FLOPS)
    }

    /// The number of threads that the products of one index of the batch are worth.
    pub(crate) fn threads(&self, par: Par) -> usize {
        par.threads(self.work())
    }

    fn repeat(&self, batch: Range<usize>, a: Floats, b: Floats, out: Target, accumulate: bool, threads: usize) {
        for i in batch {
            let outer = self.batch.at(i);
            for j in 0..self.inner.count() {
                let inner = self.inner.at(j);
                let [ao, bo, oo] = [0, 1, 2].map(|t| outer[t] + inner[t]);
                let (a, b, out) = (a.skip(ao), b.skip(bo), Target(out.0.wrapping_add(oo)));
                if self.are_dots() {
                    self.dots(a.wide(), b.wide(), out, accumulate || j > 0);
                } else {
                    self.one(a, b, out, accumulate || j > 0, threads);
                }
            }
        }
    }

    fn dots(&self, a: &[f32], b: &[f32], out: Target, accumulate: bool) {
        let ([m, n, k], [a_strides, b_strides, strides]) = (self.size, self.strides);
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let value = dot(&a[i * a_strides[0]..][..k], &b[j * b_strides[1]..][..k]);
            let to = out.0.wrapping_add(i * strides[0] + j * strides[1]);
            // SAFETY: `run` has checked that the last element is in the slice; no other index reaches this one.
            unsafe { *to = if accumulate { *to + value } else { value } };
        }
    }

    fn one(&self, a: Floats, b: Floats, out: Target, accumulate: bool, threads: usize) {
        let [a_strides, b_strides, strides] = self.strides;
        let (a, b) = (Matrix { data: a, strides: a_strides }, Matrix { data: b, strides: b_strides });
        let out = Matrix { data: out.0, strides };
        // SAFETY: `run` has checked that the last element is in the slice; no other index reaches these.
        unsafe { multiply(self.size, a, b, out, 1.0, accumulate, threads) };
    }
}

impl Loops {
    pub(crate) fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// The offset in tensor `t` at the last index.
    pub(crate) fn last(&self, t: usize) -> usize {
        self.dims.iter().zip(&self.strides[t]).map(|(d, s)| (d - 1) * s).sum()
    }

    /// The offsets in the three tensors at the `i`-th index, last dimension fastest.
    pub(crate) fn at(&self, mut i: usize) -> [usize; 3] {
        let mut offsets = [0; 3];
        for (d, size) in self.dims.iter().enumerate().rev() {
            (0..3).for_each(|t| offsets[t] += i % size * self.strides[t][d]);
            i /= size;
        }
        offsets
    }
}

simd! {
    fn dot(a: &[f32], b: &[f32]) -> f32 {
        sum2(a, b, #[inline(always)] |a, b| a * b)
    }
}
