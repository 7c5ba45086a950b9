//! Parameter updates in place.

use super::par::{Par, Rows};
use super::simd::simd;

/// True if the norm that gave this factor of the gradient was finite. Else an update is skipped.
fn is_finite_step(scale: f32) -> bool {
    scale > 0.0
}

/// The settings of one AdamW step.
#[derive(Clone, Copy, Debug)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f32,
    /// Decay of the mean of gradients.
    pub beta1: f32,
    /// Decay of the mean of their squares.
    pub beta2: f32,
    /// Added to the root of the second mean.
    pub eps: f32,
    /// Decoupled decay: `w` shrinks by `lr weight_decay`.
    pub weight_decay: f32,
    /// Multiplies the gradient: clipping, loss scale, count of tokens.
    pub scale: f32,
    /// [`bias`] of `beta1`.
    pub bias1: f32,
    /// [`bias`] of `beta2`.
    pub bias2: f32,
}

/// The settings of one step of stochastic gradient descent.
#[derive(Clone, Copy, Debug)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f32,
    /// Decay of the velocity.
    pub momentum: f32,
    /// The step looks ahead by one more decay of the velocity, if there is one.
    pub nesterov: bool,
    /// Coupled decay: `weight_decay w` is added to the gradient.
    pub weight_decay: f32,
    /// Multiplies the gradient.
    pub scale: f32,
}

/// `1 - beta^step`, from squares and products in double precision, which are the same bits on every device. A power by a library is not.
pub fn bias(mut beta: f64, mut step: u32) -> f32 {
    let mut power = 1.0;
    while step != 0 {
        if step & 1 == 1 {
            power *= beta;
        }
        beta *= beta;
        step >>= 1;
    }
    (1.0 - power) as f32
}

/// One step of AdamW as PyTorch defines it: `w -= lr weight_decay w`, then
/// `w -= lr (m / bias1) / (sqrt(v / bias2) + eps)` with the means `m` and `v` brought up to date.
/// Nothing changes unless `scale` is above 0.
///
/// # Panics
/// If the sizes differ.
pub fn adamw(w: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], settings: &AdamW, par: Par) {
    let n = w.len();
    assert!([g.len(), m.len(), v.len()] == [n; 3], "w, g, m and v are as long");
    if !is_finite_step(settings.scale) {
        return;
    }
    let parts = (Rows(w, 1), Rows(g, 1), Rows(m, 1), Rows(v, 1));
    par.rows(n, 4, parts, &|_, (w, g, m, v)| adamw_run(w.0, g.0, m.0, v.0, settings));
}

/// One step of stochastic gradient descent as PyTorch defines it: `velocity = momentum velocity + g` and
/// `w -= lr velocity`, or `w -= lr g` without velocity. Nesterov's step is `w -= lr (g + momentum velocity)`. Nothing changes
/// unless `scale` is above 0.
///
/// # Panics
/// If the sizes differ.
pub fn sgd(w: &mut [f32], g: &[f32], velocity: Option<&mut [f32]>, settings: &Sgd, par: Par) {
    let n = w.len();
    assert!(g.len() == n && velocity.as_ref().is_none_or(|m| m.len() == n), "w, g and velocity are as long");
    if !is_finite_step(settings.scale) {
        return;
    }
    let parts = (Rows(w, 1), Rows(g, 1), velocity.map(|m| Rows(m, 1)));
    par.rows(n, 3, parts, &|_, (w, g, velocity)| match velocity {
        Some(velocity) if settings.nesterov => nesterov_run(w.0, g.0, velocity.0, settings),
        Some(velocity) => momentum_run(w.0, g.0, velocity.0, settings),
        None => sgd_run(w.0, g.0, settings),
    });
}

/// The most parts whose sums of squares are made one by one.
const PARTS: usize = 64;

/// The sum of squares, in double precision. Threads change no bit: the parts depend on the number of elements alone.
pub fn sum_squares(g: &[f32], par: Par) -> f64 {
    let part = g.len().div_ceil(PARTS).next_multiple_of(1 << 12).max(1);
    let mut sums = [0.0; PARTS];
    let sums = &mut sums[..g.len().div_ceil(part)];
    par.rows(sums.len(), part, Rows(&mut *sums, 1), &|parts, Rows(sums, _)| {
        for (part, sum) in g[parts.start * part..].chunks(part).zip(sums) {
            *sum = squares(part);
        }
    });
    sums.iter().sum()
}

simd! {
    fn squares(g: &[f32]) -> f64 {
        let mut acc = [0.0; 16];
        let (chunks, tail) = g.as_chunks::<16>();
        for chunk in chunks {
            for (acc, &v) in acc.iter_mut().zip(chunk) {
                *acc += f64::from(v) * f64::from(v);
            }
        }
        for (acc, &v) in acc.iter_mut().zip(tail) {
            *acc += f64::from(v) * f64::from(v);
        }
        acc.iter().sum()
    }

    fn adamw_run(w: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], settings: &AdamW) {
        let AdamW { lr, beta1, beta2, eps, weight_decay, scale, bias1, bias2 } = *settings;
        let (keep, step, root) = (1.0 - lr * weight_decay, lr / bias1, 1.0 / bias2.sqrt());
        for (((w, &g), m), v) in w.iter_mut().zip(g).zip(m).zip(v) {
            let g = g * scale;
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            *w = *w * keep - step * *m / (v.sqrt() * root + eps);
        }
    }

    fn momentum_run(w: &mut [f32], g: &[f32], velocity: &mut [f32], settings: &Sgd) {
        let Sgd { lr, momentum, weight_decay, scale, .. } = *settings;
        for ((w, &g), velocity) in w.iter_mut().zip(g).zip(velocity) {
            *velocity = momentum * *velocity + (g * scale + weight_decay * *w);
            *w -= lr * *velocity;
        }
    }

    fn nesterov_run(w: &mut [f32], g: &[f32], velocity: &mut [f32], settings: &Sgd) {
        let Sgd { lr, momentum, weight_decay, scale, .. } = *settings;
        for ((w, &g), velocity) in w.iter_mut().zip(g).zip(velocity) {
            let g = g * scale + weight_decay * *w;
            *velocity = momentum * *velocity + g;
            *w -= lr * (g + momentum * *velocity);
        }
    }

    fn sgd_run(w: &mut [f32], g: &[f32], settings: &Sgd) {
        let Sgd { lr, weight_decay, scale, .. } = *settings;
        for (w, &g) in w.iter_mut().zip(g) {
            *w -= lr * (g * scale + weight_decay * *w);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, doubles, normals};
    use super::*;

    #[test]
    fn biases_are_those_of_powers() {
        for beta in [0.9f64, 0.95, 0.999, 0.0, 1.0] {
            for step in [0, 1, 2, 3, 10, 1000, 1 << 24] {
                let power = beta.powf(f64::from(step));
                let right = 1.0 - power;
                // Squares round the base, whose error grows with the step, and the result is rounded to f32.
                let most = (f64::from(step) + 1.0) * power * 2f64.powi(-51) + right * 2f64.powi(-24);
                let error = (f64::from(bias(beta, step)) - right).abs();
                assert!(error <= most, "{beta}, {step}: off by {error}");
            }
        }
    }

    #[test]
    fn adamw_follows_its_definition() {
        for n in [0, 1, 17, 1000, 70_001] {
            let (mut w, mut m, mut v) = (normals(n, 1), vec![0.0; n], vec![0.0; n]);
            let mut exact: Vec<[f64; 3]> = w.iter().map(|&w| [f64::from(w), 0.0, 0.0]).collect();
            let (lr, b1, b2, eps, decay, scale) = (0.01, 0.9, 0.95, 1e-8, 0.1, 0.5);
            for step in 1..=3 {
                let g = normals(n, 10 + step);
                let (bias1, bias2) = (1.0 - 0.9f64.powi(step as i32), 1.0 - 0.95f64.powi(step as i32));
                let settings = AdamW {
                    lr: lr as f32,
                    beta1: b1 as f32,
                    beta2: b2 as f32,
                    eps: eps as f32,
                    weight_decay: decay as f32,
                    scale: scale as f32,
                    bias1: bias1 as f32,
                    bias2: bias2 as f32,
                };
                adamw(&mut w, &g, &mut m, &mut v, &settings, Par(2));
                for ([w, m, v], g) in exact.iter_mut().zip(&g) {
                    let g = f64::from(*g) * scale;
                    *w -= lr * decay * *w;
                    *m = b1 * *m + (1.0 - b1) * g;
                    *v = b2 * *v + (1.0 - b2) * g * g;
                    *w -= lr * (*m / bias1) / ((*v / bias2).sqrt() + eps);
                }
            }
            let column = |i: usize| exact.iter().map(|row| row[i]).collect::<Vec<_>>();
            assert_close(&w, &column(0), 1e-6);
            assert_close(&m, &column(1), 1e-6);
            assert_close(&v, &column(2), 1e-6);
        }
    }

    #[test]
    fn sgd_follows_its_definition() {
        for n in [0, 1, 100] {
            for (momentum, nesterov) in [(false, false), (true, false), (true, true)] {
                let settings = Sgd { lr: 0.1, momentum: 0.9, nesterov, weight_decay: 0.01, scale: 2.0 };
                let (mut w, mut velocity) = (normals(n, 1), vec![0.0; n]);
                let (mut exact_w, mut exact_v) = (doubles(&w), vec![0.0; n]);
                for step in 0..3 {
                    let g = normals(n, 20 + step);
                    sgd(&mut w, &g, momentum.then_some(&mut velocity[..]), &settings, Par(1));
                    for i in 0..n {
                        let g = 2.0 * f64::from(g[i]) + 0.01 * exact_w[i];
                        exact_v[i] = if momentum { 0.9 * exact_v[i] + g } else { g };
                        exact_w[i] -= 0.1 * if nesterov { g + 0.9 * exact_v[i] } else { exact_v[i] };
                    }
                }
                assert_close(&w, &exact_w, 1e-6);
            }
        }
    }

    #[test]
    fn sums_squares_in_double_precision() {
        let g = vec![1e-3; 1_000_003];
        let exact = f64::from(1e-3f32).powi(2) * 1_000_003.0;
        let of_one = sum_squares(&g, Par(1));
        assert!((of_one / exact - 1.0).abs() < 1e-12);
        assert_eq!([2, 3].map(|threads| sum_squares(&g, Par(threads))), [of_one; 2]);
        assert_eq!(sum_squares(&[], Par(1)), 0.0);
    }
}
