//! Forward pass: the online softmax.

use super::super::gemm::multiply;
use super::super::math::{exp, ln};
use super::super::matrix::{Matrix, Target};
use super::super::simd::simd;
use super::Attention;
use super::tile::{Block, KEYS, LANES, QUERIES, as_operand, bf16_size, carve, factors_size, multiply_by};

/// Elements of scratch memory that [`block`] needs, with weights in bf16 or in f32.
pub(super) fn scratch(attention: &Attention, in_bf16: bool) -> usize {
    QUERIES * (attention.d + attention.c + KEYS + 3) + factors_size(attention, QUERIES) + bf16_size(in_bf16, QUERIES)
}

/// The attention of one block of queries, with weights in bf16 or in f32.
///
/// # Safety
/// `out` and `lse` must have the sizes of the attention, and the rows of this block be written by no one else.
pub(super) unsafe fn block(block: &Block<'_>, in_bf16: bool, out: Target, lse: Target, scratch: &mut [f32]) {
    let Attention { d, c, .. } = *block.attention;
    let lanes = block.lanes;
    let (factors, rounded) = (factors_size(block.attention, lanes), bf16_size(in_bf16, lanes));
    let sizes = [d * lanes, KEYS * lanes, lanes * c, lanes, lanes, lanes, factors, rounded];
    let [q, scores, acc, max, sum, shrink, factors, rounded] = carve(scratch, sizes);
    let queries = block.query_columns(q);
    max.fill(f32::NEG_INFINITY);
    sum.fill(0.0);
    acc.fill(0.0);
    block.for_subblocks(|part| {
        let (lanes, at) = (part.lanes.len(), part.lanes.clone());
        let scores = &mut scores[..part.keys.len() * lanes];
        block.scores(part, queries, scores);
        let shrink = &mut shrink[at.clone()];
        online_softmax(scores, 1.0, &mut max[at.clone()], &mut sum[at.clone()], shrink);
        let acc = &mut acc[at.start * c..at.end * c];
        scale_rows(acc, c, shrink);
        if let Some(dropout) = &block.attention.dropout {
            multiply_by(scores, block.factors(part, dropout, factors));
        }
        let probabilities = Matrix::rows(as_operand(scores, rounded), lanes).transposed();
        let values = block.of_keys(part, block.x.v, c);
        let to = Matrix::rows(acc.as_mut_ptr(), c);
        // SAFETY: `acc` is a slice of `lanes` rows of `c`, borrowed for writing.
        unsafe { multiply([lanes, c, part.keys.len()], probabilities, values, to, 1.0, true, 1) };
    });
    if let Some(sink) = block.sink() {
        sum_sink(max, sum, shrink, sink);
        scale_rows(acc, c, shrink);
    }
    finish(max, sum, shrink);
    scale_rows(acc, c, shrink);
    for i in 0..block.queries.len() {
        let row = block.row(i);
        // SAFETY: the row is in `out` and `lse`, and is this block's.
        unsafe {
            std::ptr::copy_nonoverlapping(acc[i * c..(i + 1) * c].as_ptr(), out.0.add(row * c), c);
            *lse.0.add(row) = max[i];
        }
    }
}

/// As [`online_softmax`], for scores that `scaled` gives of those that are stored.
#[inline(always)]
fn softmax<const FMA: bool>(scores: &mut [f32], scaled: impl Fn(f32) -> f32, [max, sum, shrink]: [&mut [f32]; 3]) {
    let lanes = max.len();
    for first in (0..lanes).step_by(LANES) {
        let at = first..first + LANES;
        let mut new = [0.0; LANES];
        new.copy_from_slice(&max[at.clone()]);
        for row in scores.chunks_exact(lanes) {
            for (new, &score) in new.iter_mut().zip(&row[at.clone()]) {
                let score = scaled(score);
                *new = if score > *new { score } else { *new };
            }
        }
        // A query that has seen no key yet: anything finite will do.
        let base = new.map(
            #[inline(always)]
            |m| if m == f32::NEG_INFINITY { 0.0 } else { m },
        );
        let mut total = [0.0; LANES];
        for row in scores.chunks_exact_mut(lanes) {
            for ((total, score), &base) in total.iter_mut().zip(&mut row[at.clone()]).zip(&base) {
                *score = exp::<FMA>(scaled(*score) - base);
                *total += *score;
            }
        }
        for i in 0..LANES {
            let lane = first + i;
            shrink[lane] = exp::<FMA>(max[lane] - base[i]);
            sum[lane] = sum[lane] * shrink[lane] + total[i];
            max[lane] = new[i];
        }
    }
}

simd! {
    /// Turns a row of scores per key, `scale` times those that are stored, into `e^(score - max)`, with `max` and `sum` brought up to
    /// date for each query. What was summed before must be multiplied by `shrink`.
    pub(super) fn online_softmax(scores: &mut [f32], scale: f32, max: &mut [f32], sum: &mut [f32], shrink: &mut [f32]) {
        let state = [max, sum, shrink];
        if scale == 1.0 {
            softmax::<FMA>(scores, #[inline(always)] |score| score, state);
        } else {
            softmax::<FMA>(scores, #[inline(always)] |score| scale * score, state);
        }
    }

    fn scale_rows(x: &mut [f32], width: usize, factors: &[f32]) {
        for (row, &factor) in x.chunks_exact_mut(width.max(1)).zip(factors) {
            for v in row {
                *v *= factor;
            }
        }
    }

    /// Adds the exponential of one more score to the sum of each query. What was summed before must be multiplied by `shrink`.
    pub(super) fn sum_sink(max: &mut [f32], sum: &mut [f32], shrink: &mut [f32], sink: f32) {
        for ((max, sum), shrink) in max.iter_mut().zip(sum).zip(shrink) {
            let next = if sink > *max { sink } else { *max };
            *shrink = exp::<FMA>(*max - next);
            *sum = *sum * *shrink + exp::<FMA>(sink - next);
            *max = next;
        }
    }

    /// Turns `max` into the log-sum-exp, and gives what the accumulated values are to be multiplied by.
    pub(super) fn finish(max: &mut [f32], sum: &[f32], factors: &mut [f32]) {
        for ((max, &sum), factor) in max.iter_mut().zip(sum).zip(factors) {
            *factor = if sum > 0.0 { 1.0 / sum } else { 0.0 };
            *max += ln::<FMA>(sum);
        }
    }
}
