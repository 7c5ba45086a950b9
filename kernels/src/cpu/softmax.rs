//! Softmax over the last dimension.

use super::math::exp;
use super::par::{Par, Rows};
use super::simd::{map_sum, max, simd, sum2};

/// `y = e^x / sum e^x` in each row of `cols` elements. A row of negative infinities gives NaN.
///
/// # Panics
/// If the sizes differ or are no multiple of `cols`.
pub fn softmax(x: &[f32], cols: usize, y: &mut [f32], par: Par) {
    let rows = count_rows(x, cols);
    assert_eq!(x.len(), y.len(), "one result per argument");
    par.rows(rows, 4 * cols, (Rows(x, cols), Rows(y, cols)), &|_, (x, y)| softmax_rows(x.0, cols, y.0));
}

/// `dx = y (dy - sum y dy)` in each row of `cols` elements, for `y` a softmax.
///
/// # Panics
/// As [`softmax`].
pub fn softmax_grad(y: &[f32], dy: &[f32], cols: usize, dx: &mut [f32], par: Par) {
    let rows = count_rows(y, cols);
    assert!(y.len() == dy.len() && y.len() == dx.len(), "one result per argument");
    let parts = (Rows(y, cols), Rows(dy, cols), Rows(dx, cols));
    par.rows(rows, 2 * cols, parts, &|_, (y, dy, dx)| grad_rows(y.0, dy.0, cols, dx.0));
}

/// The number of rows of `cols` elements, 0 if they are empty.
pub(crate) fn count_rows(x: &[f32], cols: usize) -> usize {
    let rows = x.len().checked_div(cols).unwrap_or(0);
    assert_eq!(rows * cols, x.len(), "whole rows");
    rows
}

simd! {
    fn softmax_rows(x: &[f32], cols: usize, y: &mut [f32]) {
        for (x, y) in x.chunks_exact(cols.max(1)).zip(y.chunks_exact_mut(cols.max(1))) {
            let max = max(x);
            let sum = map_sum(x, y, #[inline(always)] |v| exp::<FMA>(v - max));
            let scale = 1.0 / sum;
            for y in y {
                *y *= scale;
            }
        }
    }

    fn grad_rows(y: &[f32], dy: &[f32], cols: usize, dx: &mut [f32]) {
        let rows = y.chunks_exact(cols.max(1)).zip(dy.chunks_exact(cols.max(1)));
        for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(cols.max(1))) {
            let inner = sum2(y, dy, #[inline(always)] |y, dy| y * dy);
            for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
                *dx = y * (dy - inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, doubles, normals};
    use super::*;

    #[test]
    fn softmax_and_its_gradient() {
        for (rows, cols) in [(0, 5), (3, 0), (1, 1), (5, 33), (7, 1000), (300, 301)] {
            let x: Vec<f32> = normals(rows * cols, 1).iter().map(|v| 10.0 * v).collect();
            let dy = normals(rows * cols, 2);
            let (mut y, mut dx) = (vec![f32::NAN; rows * cols], vec![f32::NAN; rows * cols]);
            softmax(&x, cols, &mut y, Par(2));
            softmax_grad(&y, &dy, cols, &mut dx, Par(2));
            for r in 0..if cols > 0 { rows } else { 0 } {
                let at = r * cols..(r + 1) * cols;
                let e: Vec<f64> = doubles(&x[at.clone()]).into_iter().map(f64::exp).collect();
                let exact: Vec<f64> = e.iter().map(|v| v / e.iter().sum::<f64>()).collect();
                assert_close(&y[at.clone()], &exact, 1e-6);
                let dy = doubles(&dy[at.clone()]);
                let inner: f64 = exact.iter().zip(&dy).map(|(y, dy)| y * dy).sum();
                let exact: Vec<f64> = exact.iter().zip(&dy).map(|(y, dy)| y * (dy - inner)).collect();
                assert_close(&dx[at], &exact, 1e-6);
            }
        }
    }

    #[test]
    fn masked_elements_are_zero() {
        let mut y = [f32::NAN; 3];
        softmax(&[0.0, f32::NEG_INFINITY, 0.0], 3, &mut y, Par(1));
        assert_eq!(y, [0.5, 0.0, 0.5]);
    }
}
