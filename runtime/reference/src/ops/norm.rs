//! RMSNorm (Zhang and Sennrich 2019), LayerNorm (Ba et al. 2016) and softmax over the last dim.

use crate::real::Real;
use crate::tensor::Tensor;

/// Mean of some numbers.
fn mean<R: Real>(numbers: impl ExactSizeIterator<Item = R>) -> R {
    let count = R::of(numbers.len() as f64);
    numbers.sum::<R>() / count
}

/// The dims of one number per row.
fn row_dims<R: Real>(x: &Tensor<R>) -> &[usize] {
    &x.dims[..x.dims.len() - 1]
}

fn per_row<R: Real>(x: &Tensor<R>, f: impl FnMut(&[R]) -> R) -> Tensor<R> {
    let mut out = Tensor::zeros(row_dims(x));
    out.data.iter_mut().zip(x.rows().map(f)).for_each(|(out, y)| *out = y);
    out
}

/// `y = x rstd gamma` with `rstd = 1 / sqrt(mean x^2 + eps)`. Gives y and rstd.
pub(super) fn rms_norm<R: Real>(x: &Tensor<R>, gamma: &Tensor<R>, eps: f64) -> [Tensor<R>; 2] {
    let rstd = per_row(x, |row| R::one() / (mean(row.iter().map(|&x| x * x)) + R::of(eps)).sqrt());
    let n = x.columns();
    let y = Tensor::from_fn(&x.dims, |i| x.data[i] * rstd.data[i / n] * gamma.data[i % n]);
    [y, rstd]
}

/// Cotangent of x: `rstd (g - z mean(g z))` with `z = x rstd`, `g = dy gamma`.
pub(super) fn rms_norm_dx<R: Real>(x: &Tensor<R>, gamma: &Tensor<R>, rstd: &Tensor<R>, dy: &Tensor<R>) -> Tensor<R> {
    let n = x.columns();
    let z = Tensor::from_fn(&x.dims, |i| x.data[i] * rstd.data[i / n]);
    let g = Tensor::from_fn(&x.dims, |i| dy.data[i] * gamma.data[i % n]);
    let along = mean_products(&g, &z);
    Tensor::from_fn(&x.dims, |i| rstd.data[i / n] * (g.data[i] - z.data[i] * along[i / n]))
}

/// Cotangent of gamma: the sum over rows of `dy x rstd`.
pub(super) fn rms_norm_dgamma<R: Real>(x: &Tensor<R>, rstd: &Tensor<R>, dy: &Tensor<R>) -> Tensor<R> {
    let n = x.columns();
    sum_rows(x, |i| dy.data[i] * x.data[i] * rstd.data[i / n])
}

/// `y = (x - mean) rstd gamma + beta` with `rstd = 1 / sqrt(var x + eps)`, the variance over n. Gives y, mean and rstd.
pub(super) fn layer_norm<R: Real>(x: &Tensor<R>, gamma: &Tensor<R>, beta: &Tensor<R>, eps: f64) -> [Tensor<R>; 3] {
    let means = per_row(x, |row| mean(row.iter().copied()));
    let rstd = per_row(x, |row| {
        let center = mean(row.iter().copied());
        let variance = mean(row.iter().map(|&x| (x - center) * (x - center)));
        R::one() / (variance + R::of(eps)).sqrt()
    });
    let n = x.columns();
    let y = Tensor::from_fn(&x.dims, |i| {
        (x.data[i] - means.data[i / n]) * rstd.data[i / n] * gamma.data[i % n] + beta.data[i % n]
    });
    [y, means, rstd]
}

/// Cotangent of x: `rstd (g - mean g - z mean(g z))` with `z = (x - mean) rstd`, `g = dy gamma`.
pub(super) fn layer_norm_dx<R: Real>(
    x: &Tensor<R>,
    gamma: &Tensor<R>,
    means: &Tensor<R>,
    rstd: &Tensor<R>,
    dy: &Tensor<R>,
) -> Tensor<R> {
    let n = x.columns();
    let z = Tensor::from_fn(&x.dims, |i| (x.data[i] - means.data[i / n]) * rstd.data[i / n]);
    let g = Tensor::from_fn(&x.dims, |i| dy.data[i] * gamma.data[i % n]);
    let (flat, along) = (per_row(&g, |row| mean(row.iter().copied())), mean_products(&g, &z));
    Tensor::from_fn(&x.dims, |i| rstd.data[i / n] * (g.data[i] - flat.data[i / n] - z.data[i] * along[i / n]))
}

/// Cotangent of gamma: the sum over rows of `dy (x - mean) rstd`.
pub(super) fn layer_norm_dgamma<R: Real>(
    x: &Tensor<R>,
    means: &Tensor<R>,
    rstd: &Tensor<R>,
    dy: &Tensor<R>,
) -> Tensor<R> {
    let n = x.columns();
    sum_rows(x, |i| dy.data[i] * (x.data[i] - means.data[i / n]) * rstd.data[i / n])
}

/// The sum over rows of the values at each linear index.
fn sum_rows<R: Real>(x: &Tensor<R>, at: impl Fn(usize) -> R) -> Tensor<R> {
    let n = x.columns();
    let mut out = Tensor::zeros(&[n]);
    (0..x.data.len()).for_each(|i| out.data[i % n] += at(i));
    out
}

/// The mean of `a b` of each row.
fn mean_products<R: Real>(a: &Tensor<R>, b: &Tensor<R>) -> Vec<R> {
    a.rows().zip(b.rows()).map(|(a, b)| mean(a.iter().zip(b).map(|(&a, &b)| a * b))).collect()
}

/// The largest of a row.
pub(super) fn largest<R: Real>(row: &[R]) -> R {
    row.iter().copied().fold(R::of(f64::NEG_INFINITY), R::max)
}

/// `ln sum e^x` of a row; -inf of nothing.
pub(super) fn log_sum_exp<R: Real>(row: &[R]) -> R {
    let max = largest(row);
    if max == R::of(f64::NEG_INFINITY) { max } else { max + row.iter().map(|&x| (x - max).exp()).sum::<R>().ln() }
}

/// `e^x / sum e^x` of each row.
pub(super) fn softmax<R: Real>(x: &Tensor<R>) -> Tensor<R> {
    let (n, lse) = (x.columns(), per_row(x, log_sum_exp));
    Tensor::from_fn(&x.dims, |i| (x.data[i] - lse.data[i / n]).exp())
}

/// `y (dy - sum y dy)` of each row.
pub(super) fn softmax_grad<R: Real>(y: &Tensor<R>, dy: &Tensor<R>) -> Tensor<R> {
    let n = y.columns();
    let sums: Vec<R> = y.rows().zip(dy.rows()).map(|(y, dy)| y.iter().zip(dy).map(|(&y, &d)| y * d).sum()).collect();
    Tensor::from_fn(&y.dims, |i| y.data[i] * (dy.data[i] - sums[i / n]))
}
