//! Root-mean-square and layer normalisation of rows.
//!
//! A row has `gamma.len()` elements; the number of rows is the number of statistics (`rstd.len()`).

use super::columns::sum_rows;
use super::par::{Par, Rows};
use super::simd::{simd, sum, sum2};

/// `y = x rstd gamma` with `rstd = 1 / sqrt(mean(x^2) + eps)` for each row.
///
/// # Panics
/// If the sizes do not agree.
pub fn rms_norm(x: &[f32], gamma: &[f32], eps: f32, y: &mut [f32], rstd: &mut [f32], par: Par) {
    let (rows, cols) = (rstd.len(), gamma.len());
    assert!(x.len() == rows * cols && y.len() == x.len(), "x and y are rows x cols");
    let parts = (Rows(x, cols), Rows(y, cols), Rows(rstd, 1));
    par.rows(rows, 2 * cols, parts, &|_, (x, y, rstd)| rms_rows(x.0, gamma, eps, y.0, rstd.0));
}

/// The gradient of [`rms_norm`] by `x`: `dx = rstd (g - x rstd^2 mean(g x))` with `g = dy gamma`.
///
/// # Panics
/// If the sizes do not agree.
pub fn rms_norm_dx(x: &[f32], gamma: &[f32], rstd: &[f32], dy: &[f32], dx: &mut [f32], par: Par) {
    let (rows, cols) = (rstd.len(), gamma.len());
    assert!([x.len(), dy.len(), dx.len()] == [rows * cols; 3], "x, dy and dx are rows x cols");
    let parts = (Rows(x, cols), Rows(dy, cols), Rows(rstd, 1), Rows(dx, cols));
    par.rows(rows, 3 * cols, parts, &|_, (x, dy, rstd, dx)| rms_dx_rows(x.0, gamma, rstd.0, dy.0, dx.0));
}

/// The gradient of [`rms_norm`] by `gamma`, the sum over rows of `dy x rstd`, stored or added.
///
/// # Panics
/// If the sizes do not agree.
pub fn rms_norm_dgamma(x: &[f32], rstd: &[f32], dy: &[f32], dgamma: &mut [f32], accumulate: bool, par: Par) {
    dgamma_columns(x, None, rstd, dy, dgamma, accumulate, par);
}

/// `y = (x - mean) rstd gamma + beta` with `rstd = 1 / sqrt(variance + eps)` for each row; `affine` is gamma and beta,
/// `stats` receives mean and rstd.
///
/// # Panics
/// If the sizes do not agree.
pub fn layer_norm(
    x: &[f32],
    affine: (&[f32], &[f32]),
    eps: f32,
    y: &mut [f32],
    stats: (&mut [f32], &mut [f32]),
    par: Par,
) {
    let ((gamma, beta), (mean, rstd)) = (affine, stats);
    let (rows, cols) = (rstd.len(), gamma.len());
    assert!(x.len() == rows * cols && y.len() == x.len(), "x and y are rows x cols");
    assert!(beta.len() == cols && mean.len() == rows, "gamma as beta, mean as rstd");
    let parts = (Rows(x, cols), Rows(y, cols), Rows(mean, 1), Rows(rstd, 1));
    par.rows(rows, 3 * cols, parts, &|_, (x, y, mean, rstd)| {
        layer_rows(x.0, gamma, beta, eps, y.0, mean.0, rstd.0);
    });
}

/// The gradient of [`layer_norm`] by `x`: `dx = rstd (g - mean(g) - n mean(g n))` with `g = dy gamma` and
/// `n = (x - mean) rstd`; `stats` is mean and rstd.
///
/// # Panics
/// If the sizes do not agree.
pub fn layer_norm_dx(x: &[f32], gamma: &[f32], stats: (&[f32], &[f32]), dy: &[f32], dx: &mut [f32], par: Par) {
    let (mean, rstd) = stats;
    let (rows, cols) = (rstd.len(), gamma.len());
    assert!([x.len(), dy.len(), dx.len()] == [rows * cols; 3], "x, dy and dx are rows x cols");
    assert_eq!(mean.len(), rows, "mean as rstd");
    let parts = (Rows(x, cols), Rows(dy, cols), (Rows(mean, 1), Rows(rstd, 1)), Rows(dx, cols));
    par.rows(rows, 3 * cols, parts, &|_, (x, dy, (mean, rstd), dx)| {
        layer_dx_rows(x.0, gamma, mean.0, rstd.0, dy.0, dx.0);
    });
}

/// The gradient of [`layer_norm`] by `gamma`, the sum over rows of `dy (x - mean) rstd`, stored or added. That by
/// `beta` is the sum of `dy` over rows.
///
/// # Panics
/// If the sizes do not agree.
pub fn layer_norm_dgamma(
    x: &[f32],
    stats: (&[f32], &[f32]),
    dy: &[f32],
    dgamma: &mut [f32],
    accumulate: bool,
    par: Par,
) {
    assert_eq!(stats.0.len(), stats.1.len(), "mean as rstd");
    dgamma_columns(x, Some(stats.0), stats.1, dy, dgamma, accumulate, par);
}

fn dgamma_columns(
    x: &[f32],
    mean: Option<&[f32]>,
    rstd: &[f32],
    dy: &[f32],
    dgamma: &mut [f32],
    accumulate: bool,
    par: Par,
) {
    let (rows, cols) = (rstd.len(), dgamma.len());
    assert!(x.len() == rows * cols && dy.len() == x.len(), "x and dy are rows x cols");
    sum_rows(rows, 2 * rows, dgamma, accumulate, par, &|row, columns, sums| {
        let at = row * cols + columns.start..row * cols + columns.end;
        let mean = mean.map_or(0.0, |mean| mean[row]);
        add_scaled(&x[at.clone()], mean, rstd[row], &dy[at], sums);
    });
}

simd! {
    fn rms_rows(x: &[f32], gamma: &[f32], eps: f32, y: &mut [f32], rstd: &mut [f32]) {
        let cols = gamma.len();
        for (row, rstd) in rstd.iter_mut().enumerate() {
            let (x, y) = (&x[row * cols..][..cols], &mut y[row * cols..][..cols]);
            let square = sum(x, #[inline(always)] |v| v * v);
            *rstd = 1.0 / (square / cols as f32 + eps).sqrt();
            if !square.is_finite() {
                *rstd = wide_rstd(x, 0.0, eps);
            }
            for ((y, &x), &gamma) in y.iter_mut().zip(x).zip(gamma) {
                *y = x * *rstd * gamma;
            }
        }
    }

    fn rms_dx_rows(x: &[f32], gamma: &[f32], rstd: &[f32], dy: &[f32], dx: &mut [f32]) {
        let cols = gamma.len();
        for (row, &rstd) in rstd.iter().enumerate() {
            let at = row * cols..(row + 1) * cols;
            let (x, dy, dx) = (&x[at.clone()], &dy[at.clone()], &mut dx[at]);
            for ((dx, &dy), &gamma) in dx.iter_mut().zip(dy).zip(gamma) {
                *dx = dy * gamma;
            }
            let inner = sum2(x, dx, #[inline(always)] |x, g| x * g);
            let mut c = inner / cols as f32 * rstd * rstd;
            if !inner.is_finite() {
                c = wide_share(x, dx, 0.0, rstd) as f32;
            }
            for (dx, &x) in dx.iter_mut().zip(x) {
                *dx = rstd * (*dx - x * c);
            }
        }
    }

    fn layer_rows(
        x: &[f32],
        gamma: &[f32],
        beta: &[f32],
        eps: f32,
        y: &mut [f32],
        mean: &mut [f32],
        rstd: &mut [f32],
    ) {
        let cols = gamma.len();
        for (row, (mean, rstd)) in mean.iter_mut().zip(rstd).enumerate() {
            let (x, y) = (&x[row * cols..][..cols], &mut y[row * cols..][..cols]);
            let first = sum(x, #[inline(always)] |v| v) / cols as f32;
            // A mean is off by its rounding, which is all that a large and even row would leave of itself.
            let center = first + sum(x, #[inline(always)] |v| v - first) / cols as f32;
            *mean = center;
            let square = sum(x, #[inline(always)] |v| (v - center) * (v - center));
            *rstd = 1.0 / (square / cols as f32 + eps).sqrt();
            if !square.is_finite() {
                [*mean, *rstd] = wide_layer_row(x, gamma, beta, eps, y);
                continue;
            }
            for (((y, &x), &gamma), &beta) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
                *y = (x - center) * *rstd * gamma + beta;
            }
        }
    }

    fn layer_dx_rows(x: &[f32], gamma: &[f32], mean: &[f32], rstd: &[f32], dy: &[f32], dx: &mut [f32]) {
        let cols = gamma.len();
        for (row, (&mean, &rstd)) in mean.iter().zip(rstd).enumerate() {
            let at = row * cols..(row + 1) * cols;
            let (x, dy, dx) = (&x[at.clone()], &dy[at.clone()], &mut dx[at]);
            for ((dx, &dy), &gamma) in dx.iter_mut().zip(dy).zip(gamma) {
                *dx = dy * gamma;
            }
            let g = sum(dx, #[inline(always)] |g| g) / cols as f32;
            let gn = sum2(x, dx, #[inline(always)] |x, g| (x - mean) * g) / cols as f32 * rstd * rstd;
            if !(g.is_finite() && gn.is_finite()) {
                wide_layer_dx_row(x, mean, rstd, dx);
                continue;
            }
            for (dx, &x) in dx.iter_mut().zip(x) {
                *dx = rstd * (*dx - g - (x - mean) * gn);
            }
        }
    }

    /// `out += dy ((x - mean) rstd)`: what is normed does not overflow, its product with `dy` alone may.
    fn add_scaled(x: &[f32], mean: f32, rstd: f32, dy: &[f32], out: &mut [f32]) {
        for ((out, &x), &dy) in out.iter_mut().zip(x).zip(dy) {
            *out += dy * ((x - mean) * rstd);
        }
    }
}

/// The mean of `f` over a row in double precision: for rows whose sums overflow in single.
fn wide_mean(n: usize, f: impl Fn(usize) -> f64) -> f64 {
    (0..n).map(f).sum::<f64>() / n as f64
}

#[cold]
fn wide_rstd(x: &[f32], mean: f64, eps: f32) -> f32 {
    let square = wide_mean(x.len(), |i| (f64::from(x[i]) - mean).powi(2));
    (1.0 / (square + f64::from(eps)).sqrt()) as f32
}

/// `rstd^2 mean(g (x - mean))`
#[cold]
fn wide_share(x: &[f32], g: &[f32], mean: f32, rstd: f32) -> f64 {
    let rstd = f64::from(rstd);
    wide_mean(x.len(), |i| f64::from(g[i]) * ((f64::from(x[i]) - f64::from(mean)) * rstd)) * rstd
}

/// A row of [`layer_norm`]; gives its mean and rstd.
#[cold]
fn wide_layer_row(x: &[f32], gamma: &[f32], beta: &[f32], eps: f32, y: &mut [f32]) -> [f32; 2] {
    let mean = wide_mean(x.len(), |i| f64::from(x[i]));
    let rstd = wide_rstd(x, mean, eps);
    for (((y, &x), &gamma), &beta) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
        *y = ((f64::from(x) - mean) * f64::from(rstd) * f64::from(gamma) + f64::from(beta)) as f32;
    }
    [mean as f32, rstd]
}

/// A row of [`layer_norm_dx`], from `g` in `dx`.
#[cold]
fn wide_layer_dx_row(x: &[f32], mean: f32, rstd: f32, dx: &mut [f32]) {
    let g = wide_mean(x.len(), |i| f64::from(dx[i]));
    let share = wide_share(x, dx, mean, rstd);
    for (dx, &x) in dx.iter_mut().zip(x) {
        *dx = (f64::from(rstd) * (f64::from(*dx) - g - (f64::from(x) - f64::from(mean)) * share)) as f32;
    }
}

#[cfg(test)]
#[path = "norm_tests.rs"]
mod tests;
