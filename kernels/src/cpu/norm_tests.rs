//! Tests of norms and their gradients against f64.

use super::super::testing::{assert_close, doubles, normals};
use super::*;

const SIZES: [(usize, usize); 6] = [(0, 5), (4, 0), (1, 1), (3, 7), (5, 100), (130, 1030)];
const EPS: f32 = 1e-5;

/// Normalises one row in double precision; the mean is 0 without `center`.
fn normalise(x: &[f64], center: bool) -> (f64, f64, Vec<f64>) {
    let n = x.len() as f64;
    let mean = if center { x.iter().sum::<f64>() / n } else { 0.0 };
    let square = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    let rstd = 1.0 / (square + f64::from(EPS)).sqrt();
    (mean, rstd, x.iter().map(|v| (v - mean) * rstd).collect())
}

/// The gradient by `x` of `sum(g normalise(x))`, by central differences.
fn slope(x: &[f64], g: &[f64], center: bool) -> Vec<f64> {
    let value = |x: &[f64]| normalise(x, center).2.iter().zip(g).map(|(n, g)| n * g).sum::<f64>();
    let moved = |i: usize, by: f64| {
        let mut x = x.to_vec();
        x[i] += by;
        value(&x)
    };
    (0..x.len()).map(|i| (moved(i, 1e-4) - moved(i, -1e-4)) / 2e-4).collect()
}

fn check(center: bool) {
    for (rows, cols) in SIZES {
        let x: Vec<f32> = normals(rows * cols, 1).iter().map(|v| 2.0 * v + 0.5).collect();
        let (gamma, beta, dy) = (normals(cols, 2), normals(cols, 3), normals(rows * cols, 4));
        let (mut y, mut dx) = (vec![f32::NAN; rows * cols], vec![f32::NAN; rows * cols]);
        let (mut mean, mut rstd) = (vec![0.0; rows], vec![f32::NAN; rows]);
        let mut dgamma = vec![1.0; cols];
        let par = Par(2);
        if center {
            layer_norm(&x, (&gamma, &beta), EPS, &mut y, (&mut mean, &mut rstd), par);
            layer_norm_dx(&x, &gamma, (&mean, &rstd), &dy, &mut dx, par);
            layer_norm_dgamma(&x, (&mean, &rstd), &dy, &mut dgamma, true, par);
        } else {
            rms_norm(&x, &gamma, EPS, &mut y, &mut rstd, par);
            rms_norm_dx(&x, &gamma, &rstd, &dy, &mut dx, par);
            rms_norm_dgamma(&x, &rstd, &dy, &mut dgamma, true, par);
        }
        let mut exact_dgamma = vec![1.0; cols];
        for r in 0..if cols > 0 { rows } else { 0 } {
            let at = r * cols..(r + 1) * cols;
            let (exact_mean, exact_rstd, n) = normalise(&doubles(&x[at.clone()]), center);
            assert_close(&[mean[r], rstd[r]], &[exact_mean, exact_rstd], 1e-5);
            let shift = |i: usize| if center { f64::from(beta[i]) } else { 0.0 };
            let exact: Vec<f64> = (0..cols).map(|i| n[i] * f64::from(gamma[i]) + shift(i)).collect();
            assert_close(&y[at.clone()], &exact, 1e-5);
            (0..cols).for_each(|i| exact_dgamma[i] += n[i] * f64::from(dy[at.start + i]));
            if r < 5 {
                let g: Vec<f64> = (0..cols).map(|i| f64::from(dy[at.start + i] * gamma[i])).collect();
                assert_close(&dx[at.clone()], &slope(&doubles(&x[at]), &g, center), 1e-5);
            }
        }
        assert_close(&dgamma, &exact_dgamma, 1e-5);
    }
}

#[test]
fn rms_norm_and_its_gradients() {
    check(false);
}

#[test]
fn layer_norm_and_its_gradients() {
    check(true);
}

#[test]
fn dgamma_is_stored_unless_added() {
    let mut dgamma = [f32::NAN; 2];
    rms_norm_dgamma(&[1.0, 2.0], &[0.5], &[3.0, 4.0], &mut dgamma, false, Par(1));
    assert_eq!(dgamma, [1.5, 4.0]);
}
