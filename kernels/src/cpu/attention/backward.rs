//! Backward: probabilities again from the log-sum-exp, then four products per block.

use super::super::gemm::multiply;
use super::super::math::exp;
use super::super::matrix::{Matrix, Target};
use super::super::simd::{simd, sum2};
use super::tile::{Block, KEYS, QUERIES, carve, factors_size, multiply_by};
use super::{Attention, Saved};

/// Elements of scratch memory that [`block`] needs.
pub(super) fn scratch(attention: &Attention) -> usize {
    QUERIES * (attention.d + attention.c + 2 * KEYS + 2) + factors_size(attention, QUERIES)
}

/// Adds what one block of queries contributes to the gradients by `q`, `k` and `v`.
///
/// # Safety
/// The gradients must be of the sizes that the attention says, and the rows of this block's head be written by no one
/// else.
pub(super) unsafe fn block(block: &Block<'_>, saved: &Saved<'_>, [dq, dk, dv]: [Target; 3], scratch: &mut [f32]) {
    let Attention { d, c, scale, .. } = *block.attention;
    let (lanes, n) = (block.lanes, block.queries.len());
    let factors = factors_size(block.attention, lanes);
    let sizes = [d * lanes, c * lanes, KEYS * lanes, KEYS * lanes, lanes, lanes, factors];
    let [q, dout, p, dp, lse, delta, factors] = carve(scratch, sizes);
    block.transpose(block.x.q, d, q);
    block.transpose(saved.dout, c, dout);
    statistics(block, saved, lse, delta);
    block.for_keys(|keys| {
        let m = keys.range.len();
        let (p, dp) = (&mut p[..m * lanes], &mut dp[..m * lanes]);
        block.scores(keys, q, p);
        block.products(block.of_keys(keys, block.x.v, c), dout, c, 1.0, dp);
        match &block.attention.dropout {
            None => probabilities(p, dp, lse, delta),
            Some(dropout) => {
                let factors = block.factors(keys, dropout, factors);
                multiply_by(dp, factors);
                probabilities(p, dp, lse, delta);
                multiply_by(p, factors);
            }
        }
        let (p, dp) = (Matrix::rows(&*p, lanes), Matrix::rows(&*dp, lanes));
        let (q_rows, dout_rows) = (block.of_queries(block.x.q, d), block.of_queries(saved.dout, c));
        let k_rows = block.of_keys(keys, block.x.k, d);
        // SAFETY: the rows lie in the gradients, as the caller promises, and are this head's.
        unsafe {
            multiply([m, c, n], p, dout_rows, block.to_keys(keys, dv, c), 1.0, true, 1);
            multiply([m, d, n], dp, q_rows, block.to_keys(keys, dk, d), scale, true, 1);
            multiply([n, d, m], dp.transposed(), k_rows, block.to_queries(dq, d), scale, true, 1);
        }
    });
}

/// The log-sum-exp of each query, and the product of its result with the gradient by that. A query that sees nothing
/// gets a log-sum-exp that makes all its probabilities zero.
fn statistics(block: &Block<'_>, saved: &Saved<'_>, lse: &mut [f32], delta: &mut [f32]) {
    let c = block.attention.c;
    lse.fill(f32::INFINITY);
    delta.fill(0.0);
    for i in 0..block.queries.len() {
        let row = block.row(i);
        let at = row * c..(row + 1) * c;
        delta[i] = dot(&saved.out[at.clone()], &saved.dout[at]);
        if saved.lse[row] > f32::NEG_INFINITY {
            lse[i] = saved.lse[row];
        }
    }
}

simd! {
    fn dot(a: &[f32], b: &[f32]) -> f32 {
        sum2(a, b, #[inline(always)] |a, b| a * b)
    }

    /// Turns a row of scores per key into probabilities, and the gradients by probabilities into those by scores.
    fn probabilities(p: &mut [f32], dp: &mut [f32], lse: &[f32], delta: &[f32]) {
        let lanes = lse.len();
        for (p, dp) in p.chunks_exact_mut(lanes).zip(dp.chunks_exact_mut(lanes)) {
            for (((p, dp), &lse), &delta) in p.iter_mut().zip(dp).zip(lse).zip(delta) {
                *p = exp(*p - lse);
                *dp = *p * (*dp - delta);
            }
        }
    }
}
