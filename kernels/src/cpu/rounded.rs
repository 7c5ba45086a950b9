//! Matrix products whose results are narrow: they are computed in f32, and rounded while their rows are in the L2 cache.

use super::gemm::{Finish, NextRun, multiply_finished};
use super::matrix::{Matrices, Matrix};
use super::nd::span;
use super::par::Par;
use crate::cpu::narrow::{Floats, FloatsMut, Narrow, SharedFloats};

/// Narrow elements of the result.
#[derive(Clone, Copy)]
struct Rounded {
    to: SharedFloats,
    /// Elements between rows.
    down: usize,
}

impl Finish for Rounded {
    fn finish(&self, [row, column]: [usize; 2], run: &[f32], next: Option<NextRun>) {
        if let Some(NextRun { at: [row, column], len }) = next {
            self.to.prefetch(row * self.down + column, len);
        }
        // SAFETY: the last element of the product has been found in the result, and no other run has these.
        unsafe { self.to.write(row * self.down + column, run) };
    }
}

impl Matrices {
    /// True if products can be rounded as their rows are complete: each element is one sum, and its neighbours are contiguous in a
    /// dimension.
    pub(crate) fn can_round(&self) -> bool {
        let [down, across] = self.strides[2];
        self.inner.count() == 1 && !self.are_dots() && (down == 1 || across == 1)
    }

    /// Computes the products into narrow elements. The operands must have the elements that sizes, strides and loops reach, none of which
    /// may be zero.
    ///
    /// # Panics
    /// If the products reach beyond `out`, or cannot be rounded.
    pub(crate) fn run_rounded(&self, a: Floats, b: Floats, format: Narrow, out: &mut [u8], par: Par) {
        let ([m, n, k], [a_strides, b_strides, strides]) = (self.size, self.strides);
        let last = self.batch.last(2) + span(&[m, n], &strides) - 1;
        assert!(last < out.len() / format.bytes() && self.can_round(), "the products lie in the result");
        let (to, threads) = (FloatsMut::Narrow(format, out).shared(), self.threads(par));
        for i in 0..self.batch.count() {
            let [a_first, b_first, first] = self.batch.at(i);
            let a = Matrix { data: a.skip(a_first), strides: a_strides };
            let b = Matrix { data: b.skip(b_first), strides: b_strides };
            // Runs are rows of the product, or of the transposed one.
            let (size, [a, b], down) = match strides {
                [down, 1] => ([m, n, k], [a, b], down),
                [_, down] => ([n, m, k], [b.transposed(), a.transposed()], down),
            };
            let finish = Rounded { to: to.skip(first), down };
            // SAFETY: no result in f32 is written.
            unsafe { multiply_finished(size, a, b, None, threads, &finish) };
        }
    }
}
