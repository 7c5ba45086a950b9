//! Kernels and their gradients at the edges of f32, against the same formulas in f64: wherever the result is a number that f32
//! holds, the kernel gives it. Left out are inputs whose product within the formula overflows in PyTorch too.

#[path = "extremes/exact.rs"]
mod exact;

use meshwright_kernels::cpu::Par;
use meshwright_kernels::cpu::attention::{Attention, Gradients, Inputs, Saved};
use meshwright_kernels::cpu::cross_entropy::{Shard, cross_entropy, cross_entropy_grad, sum_exp};
use meshwright_kernels::cpu::dropout::{TensorPart, dropout};
use meshwright_kernels::cpu::elementwise::{Binary, Unary, binary, unary};
use meshwright_kernels::cpu::experts::{Routing, combine, combine_dw, dispatch};
use meshwright_kernels::cpu::norm::{
    layer_norm, layer_norm_dgamma, layer_norm_dx, rms_norm, rms_norm_dgamma, rms_norm_dx,
};
use meshwright_kernels::cpu::optimizer::{AdamW, Sgd, adamw, sgd, sum_squares};
use meshwright_kernels::cpu::reduce::{Reduction, reduce};
use meshwright_kernels::cpu::rope::{Heads, Turn, rope};
use meshwright_kernels::cpu::softmax::{softmax, softmax_grad};
use meshwright_kernels::cpu::top_k::{TopK, top_k};

const MAX: f32 = f32::MAX;
/// The least above 0.
const TINY: f32 = 1e-45;

/// Numbers of every size, of both signs.
fn numbers() -> Vec<f32> {
    let sizes = [
        0.0,
        TINY,
        1e-40,
        f32::MIN_POSITIVE,
        1e-30,
        1e-20,
        1e-8,
        0.5,
        1.0,
        6.0,
        17.0,
        20.0,
        60.0,
        87.0,
        88.0,
        89.0,
        104.0,
        500.0,
        1e4,
        1e10,
        1e13,
        1e19,
        1e20,
        1e30,
        1e38,
        MAX,
    ];
    sizes.into_iter().flat_map(|x| [x, -x]).collect()
}

/// Rows of 37 elements: alike, of opposite signs, alone among zeros, mixed.
fn rows() -> Vec<Vec<f32>> {
    let row = |of: &dyn Fn(usize) -> f32| (0..37).map(of).collect::<Vec<f32>>();
    let mut rows = vec![row(&|i| (i as f32 * 0.7).sin()), row(&|i| 1e4 + (i as f32 * 0.7).sin())];
    for x in [0.0, TINY, 1e-30, 1e-8, 1e4, 1e10, 1e18, 1e20, 1e30, 1e38, MAX] {
        rows.extend([row(&|_| x), row(&|i| if i % 2 == 0 { x } else { -x }), row(&|i| if i == 3 { x } else { 0.0 })]);
        rows.push(row(&|i| x * (i as f32 * 0.7).sin()));
    }
    rows
}

fn doubles(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// Asserts that results are right within a part of themselves or of `scale`; where f64 is beyond f32, nothing is asked.
#[track_caller]
fn hold(what: &str, got: &[f32], right: &[f64], scale: f64, part: f64) {
    assert_eq!(got.len(), right.len(), "{what}");
    for (i, (&got, &right)) in got.iter().zip(right).enumerate() {
        if (right as f32).is_finite() {
            let error = (f64::from(got) - right).abs();
            let most = part * right.abs().max(scale) + f64::from(f32::MIN_POSITIVE);
            assert!(error <= most, "{what}, element {i}: {got:e}, not {right:e}");
        }
    }
}

#[test]
fn functions_of_one_number() {
    let x = numbers();
    for op in Unary::ALL {
        let mut out = vec![f32::NAN; x.len()];
        unary(op, &x, &mut out, Par(1));
        // A sigmoid below the normal numbers is 0, which leaves of a product as much as the other factor is large.
        for (&x, &got) in x.iter().zip(&out) {
            hold(
                &format!("{op:?} of {x:e}"),
                &[got],
                &[exact::unary(op, x.into())],
                1e-32 * f64::from(x.abs()).max(1.0),
                4e-6,
            );
        }
    }
}

#[test]
fn functions_of_two_numbers() {
    for op in Binary::ALL {
        let slopes = !matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Max | Binary::Min);
        for dy in numbers() {
            let (x, mut out) = (numbers(), vec![f32::NAN; numbers().len()]);
            binary(op, &x, &vec![dy; x.len()], &mut out, Par(1));
            // The results of a sigmoid are from 0 to 1.
            let is_asked = |x: f32| op != Binary::SigmoidGrad || (0.0..=1.0).contains(&x);
            let right = |&x: &f32| if is_asked(x) { exact::binary(op, x.into(), dy.into()) } else { f64::NAN };
            let right: Vec<f64> = x.iter().map(right).collect();
            let scale = if slopes { f64::from(dy.abs()) } else { 0.0 };
            hold(&format!("{op:?} with {dy:e}"), &out, &right, scale, 1e-5);
        }
    }
}

/// A router of sigmoids and a gate of a shared expert at logits far below 0: scores and gradients are 0.
#[test]
fn a_sigmoid_has_a_gradient_everywhere() {
    let x = [-1e30, -200.0, -104.0, -89.0, -88.0, 0.0, 89.0, 1e30];
    let (mut y, mut dx) = ([f32::NAN; 8], [f32::NAN; 8]);
    unary(Unary::Sigmoid, &x, &mut y, Par(1));
    binary(Binary::SigmoidGrad, &y, &[1e20; 8], &mut dx, Par(1));
    assert_eq!((y[1], y[5], y[7]), (0.0, 0.5, 1.0));
    assert_eq!((dx[0], dx[1], dx[6], dx[7]), (0.0, 0.0, 0.0, 0.0));
    assert!(dx.iter().all(|dx| dx.is_finite()));
}

#[test]
fn norms_of_rows() {
    let eps = 1e-5f32;
    for x in rows() {
        let (n, what) = (x.len(), format!("of {:e}, {:e}, ..", x[0], x[1]));
        let gamma: Vec<f32> = (0..n).map(|i| 0.5 + i as f32 / 50.0).collect();
        let dy: Vec<f32> = (0..n).map(|i| (i as f32 * 1.3).cos()).collect();
        let (xs, gs): (Vec<f64>, Vec<f64>) =
            (doubles(&x), gamma.iter().zip(&dy).map(|(&gamma, &dy)| f64::from(gamma) * f64::from(dy)).collect());
        let mean_of = |f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>() / n as f64;
        for center in [false, true] {
            let what = format!("{} {what}", if center { "layer norm" } else { "RMS norm" });
            let mu = if center { mean_of(&|i| xs[i]) } else { 0.0 };
            let scale = 1.0 / (mean_of(&|i| (xs[i] - mu).powi(2)) + f64::from(eps)).sqrt();
            let normed: Vec<f64> = xs.iter().map(|x| (x - mu) * scale).collect();
            let (g, share) = (if center { mean_of(&|i| gs[i]) } else { 0.0 }, mean_of(&|i| gs[i] * normed[i]));
            let [mut y, mut dx, mut dgamma] = [(); 3].map(|()| vec![f32::NAN; n]);
            let (mut mean, mut rstd) = ([0.0], [f32::NAN]);
            if center {
                layer_norm(&x, (&gamma, &vec![0.0; n]), eps, &mut y, (&mut mean, &mut rstd), Par(1));
                layer_norm_dx(&x, &gamma, (&mean, &rstd), &dy, &mut dx, Par(1));
                layer_norm_dgamma(&x, (&mean, &rstd), &dy, &mut dgamma, false, Par(1));
            } else {
                rms_norm(&x, &gamma, eps, &mut y, &mut rstd, Par(1));
                rms_norm_dx(&x, &gamma, &rstd, &dy, &mut dx, Par(1));
                rms_norm_dgamma(&x, &rstd, &dy, &mut dgamma, false, Par(1));
            }
            // A mean of large elements is known to their rounding alone.
            let rounding = f64::from(f32::EPSILON) * mu.abs() * scale;
            let part = 2e-5 + 4.0 * rounding;
            hold(&what, &y, &(0..n).map(|i| normed[i] * f64::from(gamma[i])).collect::<Vec<_>>(), 1.0, part);
            let right: Vec<f64> = (0..n).map(|i| scale * (gs[i] - g - normed[i] * share)).collect();
            hold(&format!("dx of {what}"), &dx, &right, scale * 2.0, part);
            if x.iter().any(|&x| !(x - mean[0]).is_finite()) {
                continue;
            }
            let right: Vec<f64> = (0..n).map(|i| normed[i] * f64::from(dy[i])).collect();
            hold(&format!("dgamma of {what}"), &dgamma, &right, 1.0, part);
        }
    }
}

fn exact_softmax(x: &[f32]) -> Vec<f64> {
    let max = x.iter().fold(f64::NEG_INFINITY, |max, &x| max.max(x.into()));
    let e: Vec<f64> = x.iter().map(|&x| (f64::from(x) - max).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|e| e / sum).collect()
}

/// Logits: the rows, with masks among them.
fn logits() -> Vec<Vec<f32>> {
    let mut rows = rows();
    let masked = |row: &Vec<f32>, open: fn(usize) -> bool| {
        row.iter().enumerate().map(|(i, &x)| if open(i) { x } else { f32::NEG_INFINITY }).collect::<Vec<f32>>()
    };
    let more: Vec<Vec<f32>> = rows.iter().flat_map(|row| [masked(row, |i| i < 5), masked(row, |i| i == 3)]).collect();
    rows.extend(more);
    rows
}

#[test]
fn softmax_of_rows() {
    for x in logits() {
        let what = format!("softmax of {:e}, {:e}, ..", x[0], x[1]);
        let (right, mut y) = (exact_softmax(&x), vec![f32::NAN; x.len()]);
        softmax(&x, x.len(), &mut y, Par(1));
        hold(&what, &y, &right, 1e-30, 1e-5);
        for size in [1e-40f32, 1.0, 1e30] {
            let dy: Vec<f32> = (0..x.len()).map(|i| size * (i as f32).cos()).collect();
            let inner: f64 = right.iter().zip(&dy).map(|(&y, &dy)| y * f64::from(dy)).sum();
            let right: Vec<f64> = right.iter().zip(&dy).map(|(&y, &dy)| y * (f64::from(dy) - inner)).collect();
            let mut dx = vec![f32::NAN; x.len()];
            softmax_grad(&y, &dy, x.len(), &mut dx, Par(1));
            hold(&format!("gradient of {what}"), &dx, &right, size.into(), 1e-5);
        }
    }
}

#[test]
fn cross_entropy_of_rows() {
    for x in logits() {
        let (v, largest) = (x.len(), x.iter().fold(0f32, |max, x| if x.is_finite() { max.max(x.abs()) } else { max }));
        let what = format!("cross-entropy of {:e}, {:e}, ..", x[0], x[1]);
        // The log of a sum is known to its rounding, which the gradient takes for probabilities.
        let known = f64::from(largest) * f64::from(f32::EPSILON);
        let (mut loss, mut lse, mut dx) = (f32::NAN, [f32::NAN; 2], vec![f32::NAN; 2 * v]);
        let two = [&x[..], &x].concat();
        cross_entropy(&two, v, &[3, -1], &mut loss, &mut lse, Par(1));
        cross_entropy_grad(Shard { values: &two, v, origin: 0 }, &[3, -1], &lse, 0.5, &mut dx, Par(1));
        let p = exact_softmax(&x);
        hold(&what, &[loss], &[-p[3].ln()], 1.0, 1e-5 + known);
        assert!(dx.iter().all(|dx| dx.is_finite()) && dx[v..].iter().all(|&dx| dx == 0.0), "{what}: {dx:?}");
        if known < 1e-2 {
            let right: Vec<f64> = (0..v).map(|i| 0.5 * (p[i] - f64::from(u8::from(i == 3)))).collect();
            hold(&what, &dx[..v], &right, 1.0, 1e-5 + 2.0 * known);
        }
        let (max, mut sum) = (x.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b)), [f32::NAN]);
        sum_exp(&x, v, &[max], &mut sum, Par(1));
        hold(&what, &sum, &[x.iter().map(|&x| (f64::from(x) - f64::from(max)).exp()).sum()], 0.0, 1e-5);
    }
}

/// Queries times their keys up to 1e4, masks that leave all, one or no key, values of any size.
#[test]
fn attention_of_rows() {
    let (s, t, d) = (6, 6, 4);
    for (size, value) in [(0.0, 1.0), (1.0, 1.0), (1.0, 1e30), (1.0, 1e-40), (100.0, 1.0), (1e-30, 1.0)] {
        let fill = |n: usize, by: f32, seed: f32| (0..n).map(|i| by * (i as f32 * seed).sin()).collect::<Vec<f32>>();
        let (q, k, v) = (fill(s * d, size, 1.1), fill(t * d, size, 2.3), fill(t * d, value, 0.7));
        let dout = fill(s * d, 1.0, 0.9);
        let places: Vec<i32> = (0..t as i32).collect();
        // The last two queries are of a segment that no key is of.
        let (qseg, kseg) = ([0, 0, 0, 0, 9, 9], [0; 6]);
        let attention = Attention {
            b: 1,
            s,
            t,
            g: 1,
            r: 1,
            d,
            c: d,
            scale: 0.5,
            causal: true,
            window: None,
            chunk: None,
            softcap: None,
            dropout: None,
        };
        let inputs = Inputs {
            q: (&q).into(),
            k: (&k).into(),
            v: (&v).into(),
            qpos: &places,
            kpos: &places,
            qseg: &qseg,
            kseg: &kseg,
            sink: None,
        };
        let (mut out, mut lse, mut scratch) = (vec![f32::NAN; s * d], vec![f32::NAN; s], Vec::new());
        attention.forward(&inputs, &mut out, &mut lse, Par(1), &mut scratch);
        let [mut dq, mut dk, mut dv] = [(); 3].map(|()| vec![f32::NAN; s * d]);
        let gradients = Gradients { dq: (&mut dq).into(), dk: (&mut dk).into(), dv: (&mut dv).into() };
        attention.backward(
            &inputs,
            &Saved { out: (&out).into(), lse: &lse, dout: (&dout).into() },
            gradients,
            Par(1),
            &mut scratch,
        );
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
        let row = |x: &'_ [f32], i: usize| x[i * d..(i + 1) * d].to_vec();
        let [mut right_out, mut right_dq, mut right_dk, mut right_dv] = [(); 4].map(|()| vec![0.0; s * d]);
        for i in 0..4 {
            let scores: Vec<f32> = (0..=i).map(|j| (0.5 * dot(&row(&q, i), &row(&k, j))) as f32).collect();
            let p = exact_softmax(&scores);
            let dp: Vec<f64> = (0..=i).map(|j| dot(&row(&dout, i), &row(&v, j))).collect();
            let delta: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
            for (j, c) in (0..=i).flat_map(|j| (0..d).map(move |c| (j, c))) {
                let ds = 0.5 * p[j] * (dp[j] - delta);
                right_out[i * d + c] += p[j] * f64::from(v[j * d + c]);
                right_dq[i * d + c] += ds * f64::from(k[j * d + c]);
                right_dk[j * d + c] += ds * f64::from(q[i * d + c]);
                right_dv[j * d + c] += p[j] * f64::from(dout[i * d + c]);
            }
        }
        let (what, scale) = (format!("attention of {size:e} and {value:e}"), f64::from(value));
        // Scores of 1e4 are known to 1e-3, and their exponentials to a thousandth.
        let part = 1e-5 + f64::from(size * size) * 1e-6;
        hold(&what, &out, &right_out, scale, part);
        hold(&what, &dq, &right_dq, scale * f64::from(size), part);
        hold(&what, &dk, &right_dk, scale * f64::from(size), part);
        hold(&what, &dv, &right_dv, 1.0, part);
        assert!(out[4 * d..].iter().all(|&x| x == 0.0) && lse[4..] == [f32::NEG_INFINITY; 2], "{what}");
    }
}

#[test]
fn updates() {
    let set =
        AdamW { lr: 0.1, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, scale: 1.0, bias1: 0.1, bias2: 0.05 };
    let g: Vec<f32> = numbers().into_iter().filter(|g| g.abs() <= 1e19).collect();
    let [mut w, mut m, mut v] = [1.0, 0.0, 0.0].map(|x| vec![x; g.len()]);
    adamw(&mut w, &g, &mut m, &mut v, &set, Par(1));
    let after = |g: f64| {
        let (m, v) = ((1.0 - f64::from(set.beta1)) * g, (1.0 - f64::from(set.beta2)) * g * g);
        let root = (v / f64::from(set.bias2)).sqrt() + f64::from(set.eps);
        1.0 - f64::from(set.lr * set.weight_decay) - f64::from(set.lr) * (m / f64::from(set.bias1)) / root
    };
    hold("AdamW", &w, &g.iter().map(|&g| after(g.into())).collect::<Vec<_>>(), 1.0, 1e-5);
    let mut w = vec![0.0; numbers().len()];
    sgd(
        &mut w,
        &numbers(),
        None,
        &Sgd { lr: 0.1, momentum: 0.0, nesterov: false, weight_decay: 0.0, scale: 1.0 },
        Par(1),
    );
    hold("SGD", &w, &numbers().iter().map(|&g| -f64::from(0.1f32) * f64::from(g)).collect::<Vec<_>>(), 0.0, 1e-6);
    for x in [0.0, TINY, 1e-30, 1e30, MAX] {
        assert!(
            (sum_squares(&[x; 40], Par(1)) - 40.0 * f64::from(x).powi(2)).abs() <= 1e-12 * 40.0 * f64::from(x).powi(2)
        );
    }
}

#[test]
fn what_moves_rows() {
    for x in rows() {
        let n = x.len();
        let what = format!("of {:e}, {:e}, ..", x[0], x[1]);
        let largest = x.iter().fold(0f32, |max, x| max.max(x.abs()));
        let (mut sum, mut max) = ([f32::NAN], [f32::NAN]);
        reduce(Reduction::Sum, &x, &[n], &[false], &mut sum, Par(1));
        reduce(Reduction::Max, &x, &[n], &[false], &mut max, Par(1));
        if largest < 1e37 {
            hold(
                &format!("sum {what}"),
                &sum,
                &[x.iter().map(|&x| f64::from(x)).sum()],
                40.0 * f64::from(largest),
                1e-6,
            );
        }
        assert_eq!(max[0], x.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b)), "max {what}");
        for pos in [0, -5, i32::MAX, i32::MIN] {
            let mut out = vec![f32::NAN; n - 1];
            let frequencies: Vec<f64> = (0..n / 2).map(|i| 1e4f64.powf(-(i as f64) / 18.0)).collect();
            let turn = Turn { frequencies: &frequencies, beyond: None, gain: 1.0, inverse: false };
            rope(&x[1..], Heads { heads: 1, d: n - 1 }, &[pos], turn, &mut out, Par(1));
            let half = n / 2;
            let right: Vec<f64> = (0..n - 1)
                .map(|i| {
                    let angle = f64::from(pos) * frequencies[i % half];
                    let other = if i < half { -f64::from(x[1 + i + half]) } else { f64::from(x[1 + i - half]) };
                    f64::from(x[1 + i]) * angle.cos() + other * angle.sin()
                })
                .collect();
            hold(&format!("rope at {pos} {what}"), &out, &right, largest.into(), 2e-6);
        }
        let mut out = vec![f32::NAN; n];
        let part = TensorPart { dims: &[n], origin: &[0], global_dims: &[n as u64], skipped: 0 };
        dropout(&x, &mut out, 0.999_999_94, [1, 2], part, Par(1));
        assert!(out.iter().zip(&x).all(|(&out, &x)| out == 0.0 || x != 0.0), "dropout {what}");
        let (mut values, mut index) = ([f32::NAN; 4], [-1; 4]);
        top_k(&x, &TopK { columns: n, k: 4, bias: None, limit: None }, &mut values, &mut index, Par(1));
        assert!(values.iter().zip(&index).all(|(&value, &i)| value == x[i as usize]), "top {what}");
        assert_eq!(values[0], max[0], "top {what}");
    }
}

/// Rows weighed by 0, by the least and by the largest weight.
#[test]
fn experts_take_rows_of_any_size() {
    let h = 3;
    for x in [0.0, TINY, 1e-20, 1.0, 1e20, MAX] {
        let (rows, index, weights) = ([x, -x, x / 2.0, x, x, -x], [1, 0, 0, 1], [0.0, TINY, 0.5, 1.0]);
        let routing = Routing {
            index: &index,
            weights: Some(&weights),
            tokens: 2,
            choices: 2,
            experts: 2,
            origin: 0,
            capacity: 2,
        };
        let (mut out, mut back, mut dw, mut count) = ([f32::NAN; 12], [f32::NAN; 6], [f32::NAN; 4], [0; 2]);
        dispatch(&rows, h, &routing, &mut out, &mut count, Par(1));
        let weighed =
            |row: usize, by: f32| (0..h).map(|i| f64::from(rows[row * h + i]) * f64::from(by)).collect::<Vec<_>>();
        let right = [weighed(0, TINY), weighed(1, 0.5), weighed(0, 0.0), weighed(1, 1.0)].concat();
        hold(&format!("dispatch of {x:e}"), &out, &right, 0.0, 1e-6);
        combine(&out, h, &routing, &mut back, &mut count, Par(1));
        let squares: Vec<f64> = [weights[0].powi(2) + weights[1].powi(2), 1.25].into_iter().map(f64::from).collect();
        let right: Vec<f64> = (0..6).map(|i| f64::from(rows[i]) * squares[i / h]).collect();
        hold(&format!("combine of {x:e}"), &back, &right, 0.0, 1e-6);
        combine_dw(&rows, &[1e-3; 12], h, &routing, &mut dw, &mut count, Par(1));
        let right: Vec<f64> = index.iter().enumerate().map(|(i, _)| weighed(i / 2, 1e-3).iter().sum()).collect();
        hold(&format!("gradient by weights of {x:e}"), &dw, &right, f64::from(x), 1e-5);
    }
}
