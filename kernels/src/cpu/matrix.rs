//! Matrix products through the `gemm` crate.

use std::ops::Range;

use gemm::Parallelism;

use super::nd::{Dims, span};
use super::par::Par;
use super::simd::{simd, sum2};

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

/// A slice that several threads write to, each in elements of its own.
#[derive(Clone, Copy)]
pub(crate) struct Target(pub(crate) *mut f32);

// SAFETY: whoever dereferences the pointer sees to it that threads write to different elements.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

/// `out = scale a b`, or that added, for `a` of `m` x `k` and `b` of `k` x `n`.
///
/// # Panics
/// If `a` or `b` reaches beyond its slice.
///
/// # Safety
/// The elements of `out` must be valid for writes (and reads, to add) that no one else makes meanwhile.
pub(crate) unsafe fn multiply(
    [m, n, k]: [usize; 3],
    a: Matrix<&[f32]>,
    b: Matrix<&[f32]>,
    out: Matrix<*mut f32>,
    scale: f32,
    accumulate: bool,
    threads: usize,
) {
    assert!(span(&[m, k], &a.strides) <= a.data.len() && span(&[k, n], &b.strides) <= b.data.len());
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    let [[out_down, out_across], [a_down, a_across], [b_down, b_across]] =
        [out.strides, a.strides, b.strides].map(|pair| pair.map(|s| s as isize));
    let (a, b, keep) = (a.data.as_ptr(), b.data.as_ptr(), if accumulate { 1.0 } else { 0.0 });
    // SAFETY: `a` and `b` lie in their slices, as has been checked; the caller answers for `out`.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.data,
            out_across,
            out_down,
            accumulate,
            a,
            a_across,
            a_down,
            b,
            b_across,
            b_down,
            keep,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}

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
    /// Computes the products into `out`, or adds them. The slices must have the elements that sizes, strides and loops
    /// reach, none of which may be zero.
    pub(crate) fn run(&self, a: &[f32], b: &[f32], out: &mut [f32], accumulate: bool, par: Par) {
        let [m, n, _] = self.size;
        let last = self.batch.last(2) + span(&[m, n], &self.strides[2]) - 1;
        assert!(last < out.len(), "the products lie in the result");
        let target = Target(out.as_mut_ptr());
        let count = self.batch.count();
        let work = 2 * self.size.iter().product::<usize>() * self.inner.count();
        let threads = par.threads(work.saturating_mul(count));
        if count < threads {
            return self.repeat(0..count, a, b, target, accumulate, threads);
        }
        par.rows(count, work, (), &|range, ()| self.repeat(range, a, b, target, accumulate, 1));
    }

    fn repeat(&self, batch: Range<usize>, a: &[f32], b: &[f32], out: Target, accumulate: bool, threads: usize) {
        for i in batch {
            let outer = self.batch.at(i);
            for j in 0..self.inner.count() {
                let inner = self.inner.at(j);
                let [ao, bo, oo] = [0, 1, 2].map(|t| outer[t] + inner[t]);
                self.one(&a[ao..], &b[bo..], Target(out.0.wrapping_add(oo)), accumulate || j > 0, threads);
            }
        }
    }

    fn one(&self, a: &[f32], b: &[f32], out: Target, accumulate: bool, threads: usize) {
        let [m, n, k] = self.size;
        let [a_strides, b_strides, strides] = self.strides;
        if (m, n) == (1, 1) && a_strides[1] == 1 && b_strides[0] == 1 {
            let value = dot(&a[..k], &b[..k]);
            // SAFETY: `run` has checked that the last element lies in the slice; no other index reaches this one.
            unsafe { *out.0 = if accumulate { *out.0 + value } else { value } };
            return;
        }
        let (a, b) = (Matrix { data: a, strides: a_strides }, Matrix { data: b, strides: b_strides });
        let out = Matrix { data: out.0, strides };
        // SAFETY: `run` has checked that the last element lies in the slice; no other index reaches these.
        unsafe { multiply(self.size, a, b, out, 1.0, accumulate, threads) };
    }
}

impl Loops {
    fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// The offset in tensor `t` at the last index.
    fn last(&self, t: usize) -> usize {
        self.dims.iter().zip(&self.strides[t]).map(|(d, s)| (d - 1) * s).sum()
    }

    /// The offsets in the three tensors at the `i`-th index, last dimension fastest.
    fn at(&self, mut i: usize) -> [usize; 3] {
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
