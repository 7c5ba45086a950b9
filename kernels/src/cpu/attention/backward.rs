//! Backward pass: recomputes the probabilities from the log-sum-exp, then does four products per block.

use super::super::gemm::{column_products, multiply};
use super::super::math::exp;
use super::super::matrix::{Matrix, Target};
use super::super::simd::simd;
use super::tile::{Block, KEYS, LANES, QUERIES, Subblock, as_operand, bf16_size, carve, factors_size, multiply_by};
use super::{Attention, Saved};

/// Elements of scratch memory that [`block`] needs, with weights in bf16 or in f32.
pub(super) fn scratch(attention: &Attention, in_bf16: bool) -> usize {
    let rounded = 2 * bf16_size(in_bf16, QUERIES);
    QUERIES * (attention.d + 2 * attention.c + 2 * KEYS + 2) + factors_size(attention, QUERIES) + rounded
}

/// Adds what one block of queries contributes to the gradients by `q`, `k` and `v`, with weights in bf16 or in f32. In bf16, all operands
/// are.
///
/// # Safety
/// The gradients must have the sizes of the attention, and the rows of this block's head be written by no one
/// else.
pub(super) unsafe fn block(
    block: &Block<'_>,
    in_bf16: bool,
    saved: &Saved<'_>,
    [dq, dk, dv]: [Target; 3],
    scratch: &mut [f32],
) {
    let Attention { d, c, scale, .. } = *block.attention;
    let lanes = block.lanes;
    let (factors, rounded) = (factors_size(block.attention, lanes), bf16_size(in_bf16, lanes));
    let sizes = [d * lanes, c * lanes, c * lanes, KEYS * lanes, KEYS * lanes, lanes, lanes, factors, rounded, rounded];
    let [q, out, dout, p, dp, lse, delta, factors, p_space, dp_space] = carve(scratch, sizes);
    let queries = block.query_columns(q);
    // Where a query sees one value alone, the gradient by its weight is `delta` to the bit, and cancels.
    let dout = if in_bf16 {
        row_products(block, saved, delta);
        block.columns(saved.dout, c)
    } else {
        block.transpose(saved.out, c, out);
        block.transpose(saved.dout, c, dout);
        column_products(out, dout, delta);
        block.padded(dout)
    };
    log_sums(block, saved.lse, lse);
    block.for_subblocks(|part| {
        let (lanes, first, m) = (part.lanes.len(), part.lanes.start, part.keys.len());
        let (p, dp) = (&mut p[..m * lanes], &mut dp[..m * lanes]);
        let (lse, delta) = (&lse[part.lanes.clone()], &delta[part.lanes.clone()]);
        block.scores(part, queries, p);
        block.products(part, block.of_keys(part, block.x.v, c), dout, c, 1.0, dp);
        weights_of(block, part, 1.0, [p, dp], [lse, delta], factors);
        let [p, dp] = [as_operand(p, p_space), as_operand(dp, dp_space)].map(|weights| Matrix::rows(weights, lanes));
        let n = lanes.min(block.queries.len() - first);
        let (q_rows, dout_rows) = (block.of_queries(first, block.x.q, d), block.of_queries(first, saved.dout, c));
        let k_rows = block.of_keys(part, block.x.k, d);
        // SAFETY: the rows are in the gradients, as the caller promises, and are this head's.
        unsafe {
            multiply([m, c, n], p, dout_rows, block.to_keys(part, dv, c), 1.0, true, 1);
            multiply([m, d, n], dp, q_rows, block.to_keys(part, dk, d), scale, true, 1);
            multiply([n, d, m], dp.transposed(), k_rows, block.to_queries(first, dq, d), scale, true, 1);
        }
    });
}

/// Turns scores of a part, `scale` times those that are stored, into its weights, and gradients by weights into those by scores.
pub(super) fn weights_of(
    block: &Block<'_>,
    part: &Subblock,
    scale: f32,
    [p, dp]: [&mut [f32]; 2],
    [lse, delta]: [&[f32]; 2],
    factors: &mut [f32],
) {
    let probabilities = |p: &mut [f32], dp: &mut [f32]| match block.attention.softcap {
        None => probabilities(p, dp, scale, lse, delta),
        Some(softcap) => bounded_probabilities(p, dp, lse, delta, softcap),
    };
    match &block.attention.dropout {
        None => probabilities(p, dp),
        Some(dropout) => {
            let factors = block.factors(part, dropout, factors);
            multiply_by(dp, factors);
            probabilities(p, dp);
            multiply_by(p, factors);
        }
    }
}

/// The product of the result and its gradient for each query, whose terms are added as those of values and gradients.
pub(super) fn row_products(block: &Block<'_>, saved: &Saved<'_>, delta: &mut [f32]) {
    let c = block.attention.c;
    delta.fill(0.0);
    for first in (0..block.queries.len()).step_by(LANES) {
        let n = LANES.min(block.queries.len() - first);
        let [out, dout] = [saved.out, saved.dout].map(|x| block.of_queries(first, x, c));
        let mut products = [0.0; LANES * LANES];
        let to = Matrix::rows(products.as_mut_ptr(), LANES);
        // SAFETY: the array has the rows, and is borrowed for writing.
        unsafe { multiply([n, n, c], out, dout.transposed(), to, 1.0, false, 1) };
        for (i, delta) in delta[first..first + n].iter_mut().enumerate() {
            *delta = products[i * LANES + i];
        }
    }
}

/// The log-sum-exp of each query. One that sees nothing gets what makes all its probabilities zero.
pub(super) fn log_sums(block: &Block<'_>, saved: &[f32], lse: &mut [f32]) {
    lse.fill(f32::INFINITY);
    for (i, lse) in (0..block.queries.len()).zip(lse) {
        let value = saved[block.row(i)];
        if value > f32::NEG_INFINITY {
            *lse = value;
        }
    }
}

/// As [`probabilities`], for scores that `scaled` gives of those that are stored.
#[inline(always)]
fn scaled_probabilities<const FMA: bool>(
    [p, dp]: [&mut [f32]; 2],
    scaled: impl Fn(f32) -> f32,
    [lse, delta]: [&[f32]; 2],
) {
    let ((lse, _), (delta, _)) = (lse.as_chunks::<LANES>(), delta.as_chunks::<LANES>());
    let ((p, _), (dp, _)) = (p.as_chunks_mut::<LANES>(), dp.as_chunks_mut::<LANES>());
    for (p, dp) in p.chunks_exact_mut(lse.len()).zip(dp.chunks_exact_mut(lse.len())) {
        for (((p, dp), lse), delta) in p.iter_mut().zip(dp).zip(lse).zip(delta) {
            for (((p, dp), &lse), &delta) in p.iter_mut().zip(dp).zip(lse).zip(delta) {
                *p = exp::<FMA>(scaled(*p) - lse);
                *dp = *p * (*dp - delta);
            }
        }
    }
}

simd! {
    /// Turns a row of scores per key, `scale` times those that are stored, into probabilities, and the gradients by probabilities into
    /// those by scores.
    fn probabilities(p: &mut [f32], dp: &mut [f32], scale: f32, lse: &[f32], delta: &[f32]) {
        if scale == 1.0 {
            scaled_probabilities::<FMA>([p, dp], #[inline(always)] |p| p, [lse, delta]);
        } else {
            scaled_probabilities::<FMA>([p, dp], #[inline(always)] |p| scale * p, [lse, delta]);
        }
    }

    /// Turns bounded scores into the same; the slope of the bound is `1 - (score / softcap)^2`.
    fn bounded_probabilities(p: &mut [f32], dp: &mut [f32], lse: &[f32], delta: &[f32], softcap: f32) {
        let lanes = lse.len();
        for (p, dp) in p.chunks_exact_mut(lanes).zip(dp.chunks_exact_mut(lanes)) {
            for (((p, dp), &lse), &delta) in p.iter_mut().zip(dp).zip(lse).zip(delta) {
                // A score that is not seen is infinite, and has no probability.
                let share = if *p < -softcap { 1.0 } else { *p / softcap };
                *p = exp::<FMA>(*p - lse);
                *dp = *p * (*dp - delta) * (1.0 - share * share);
            }
        }
    }
}
