//! Embedding and cross-entropy, indexed by token numbers. A token number outside the vocabulary selects no entry, and a
//! negative label is ignored.

use super::norm::log_sum_exp;
use crate::real::Real;
use crate::tensor::Tensor;

/// The place of a token in a vocabulary.
fn place(token: i32, vocabulary: usize) -> Option<usize> {
    usize::try_from(token).ok().filter(|&place| place < vocabulary)
}

/// Row `id` of the table `[v, h]` for each id; zeros where there is none.
pub(super) fn embedding<R: Real>(ids: &Tensor<i32>, table: &Tensor<R>, dims: &[usize]) -> Tensor<R> {
    let (v, h) = (table.dims[0], table.dims[1]);
    Tensor::from_fn(dims, |i| place(ids.data[i / h], v).map_or(R::zero(), |id| table.data[id * h + i % h]))
}

/// The sum of the rows of dy at each id: the cotangent of the table. That of the id `pad` stays zero.
pub(super) fn embedding_grad<R: Real>(
    ids: &Tensor<i32>,
    dy: &Tensor<R>,
    dims: &[usize],
    pad: Option<u64>,
) -> Tensor<R> {
    let (v, h) = (dims[0], dims[1]);
    let mut out = Tensor::zeros(dims);
    for (i, &dy) in dy.data.iter().enumerate() {
        if let Some(id) = place(ids.data[i / h], v).filter(|&id| Some(id as u64) != pad) {
            out.data[id * h + i % h] += dy;
        }
    }
    out
}

/// The sum over valid tokens of `lse - logit of the label`, and `lse = ln sum e^logits` of every token.
pub(super) fn cross_entropy<R: Real>(logits: &Tensor<R>, labels: &Tensor<i32>) -> [Tensor<R>; 2] {
    let mut lse = Tensor::zeros(&labels.dims);
    lse.data.iter_mut().zip(logits.rows()).for_each(|(lse, row)| *lse = log_sum_exp(row));
    let loss = token_loss(&lse, &pick(logits, labels), labels);
    [loss, lse]
}

/// `(e^(logit - lse) - [is the label]) dloss`; 0 for ignored tokens.
pub(super) fn cross_entropy_grad<R: Real>(
    logits: &Tensor<R>,
    labels: &Tensor<i32>,
    lse: &Tensor<R>,
    dloss: &Tensor<R>,
) -> Tensor<R> {
    let v = logits.columns();
    Tensor::from_fn(&logits.dims, |i| {
        let label = labels.data[i / v];
        let hit = if place(label, v) == Some(i % v) { R::one() } else { R::zero() };
        let slope = ((logits.data[i] - lse.data[i / v]).exp() - hit) * dloss.data[0];
        if label < 0 { R::zero() } else { slope }
    })
}

/// `sum e^(logits - max)` of each row.
pub(super) fn sum_exp<R: Real>(logits: &Tensor<R>, max: &Tensor<R>) -> Tensor<R> {
    let mut out = Tensor::zeros(&max.dims);
    for ((out, row), &max) in out.data.iter_mut().zip(logits.rows()).zip(&max.data) {
        *out = row.iter().map(|&x| (x - max).exp()).sum();
    }
    out
}

/// The logit at the label of each row; 0 where there is none.
pub(super) fn pick<R: Real>(logits: &Tensor<R>, labels: &Tensor<i32>) -> Tensor<R> {
    let v = logits.columns();
    Tensor::from_fn(&labels.dims, |row| {
        place(labels.data[row], v).map_or(R::zero(), |label| logits.data[row * v + label])
    })
}

/// The sum over valid tokens of `lse - picked`.
pub(super) fn token_loss<R: Real>(lse: &Tensor<R>, picked: &Tensor<R>, labels: &Tensor<i32>) -> Tensor<R> {
    let valid = (0..labels.data.len()).filter(|&i| labels.data[i] >= 0);
    Tensor::scalar(valid.map(|i| lse.data[i] - picked.data[i]).sum())
}
