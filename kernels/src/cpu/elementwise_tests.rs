//! Element-wise kernels against f64.

use super::super::testing::{assert_close, doubles, normals};
use super::*;

const SIZES: [usize; 6] = [0, 1, 7, 33, 1000, 200_003];

/// GELU's exact form, with erf by its Maclaurin series: 60 terms are exact to 1e-13 for the arguments in use.
fn gelu_erf(x: f64) -> f64 {
    let z = x / 2f64.sqrt();
    let (mut term, mut sum) = (z, z);
    for n in 1..120 {
        term *= -z * z / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    0.5 * x * (1.0 + 2.0 / std::f64::consts::PI.sqrt() * sum)
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn slope(f: fn(f64) -> f64, x: f64) -> f64 {
    (f(x + 1e-5) - f(x - 1e-5)) / 2e-5
}

#[test]
fn unary_functions() {
    type Case = (Unary, fn(f64) -> f64);
    let cases: [Case; 13] = [
        (Unary::Neg, |x| -x),
        (Unary::Exp, f64::exp),
        (Unary::Log, f64::ln),
        (Unary::Sqrt, f64::sqrt),
        (Unary::Rsqrt, |x| 1.0 / x.sqrt()),
        (Unary::Recip, |x| 1.0 / x),
        (Unary::Square, |x| x * x),
        (Unary::Silu, silu),
        (Unary::Gelu, gelu),
        (Unary::GeluErf, gelu_erf),
        (Unary::Scale(0.7), |x| f64::from(0.7f32) * x),
        (Unary::Shift(-3.5), |x| x - 3.5),
        (Unary::AtMost(0.5), |x| x.min(0.5)),
    ];
    for (op, exact) in cases {
        let positive = matches!(op, Unary::Log | Unary::Sqrt | Unary::Rsqrt);
        for n in SIZES {
            let mut x = normals(n, 3);
            if positive {
                x.iter_mut().for_each(|v| *v = v.abs());
            }
            let mut out = vec![f32::NAN; n];
            unary(op, &x, &mut out, Par(2));
            let expected: Vec<f64> = doubles(&x).into_iter().map(exact).collect();
            assert_close(&out, &expected, 2e-6);
        }
    }
}

#[test]
fn activations_far_out() {
    for op in [Unary::Silu, Unary::Gelu, Unary::GeluErf] {
        let mut out = [f32::NAN; 2];
        unary(op, &[-200.0, 200.0], &mut out, Par(1));
        assert_eq!(out, [0.0, 200.0], "{op:?}");
    }
}

#[test]
fn binary_functions() {
    type Case = (Binary, fn(f64, f64) -> f64);
    let cases: [Case; 8] = [
        (Binary::Add, |a, b| a + b),
        (Binary::Sub, |a, b| a - b),
        (Binary::Mul, |a, b| a * b),
        (Binary::Div, |a, b| a / b),
        (Binary::Max, f64::max),
        (Binary::SiluGrad, |x, dy| dy * slope(silu, x)),
        (Binary::GeluGrad, |x, dy| dy * slope(gelu, x)),
        (Binary::GeluErfGrad, |x, dy| dy * slope(gelu_erf, x)),
    ];
    for (op, exact) in cases {
        for n in SIZES {
            let (a, b) = (normals(n, 4), normals(n, 5));
            let mut out = vec![f32::NAN; n];
            binary(op, &a, &b, &mut out, Par(2));
            let expected: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| exact(a.into(), b.into())).collect();
            assert_close(&out, &expected, 2e-6);
        }
    }
}

#[test]
fn broadcasts() {
    let dims = [3, 4, 5];
    let strides = [[20, 5, 1], [0, 5, 1], [0, 0, 1], [4, 1, 0], [1, 3, 12], [0, 0, 0], [1, 0, 0]];
    for a_strides in strides {
        for b_strides in strides {
            let (a, b) = (normals(60, 6), normals(60, 7));
            let mut out = vec![f32::NAN; 60];
            let operands = (Strided(&a, &a_strides), Strided(&b, &b_strides));
            broadcast_binary(Binary::Sub, operands.0, operands.1, &mut out, &dims, Par(1));
            let mut expected = vec![];
            walk(&dims, [&a_strides, &b_strides], [0, 0], &mut |[i, j]| expected.push(a[i] - b[j]));
            assert_eq!(out, expected, "{a_strides:?} {b_strides:?}");
        }
    }
    let mut one = [0.0];
    broadcast_binary(Binary::Add, Strided(&[1.0], &[]), Strided(&[2.0], &[]), &mut one, &[], Par(1));
    assert_eq!(one, [3.0]);
    broadcast_binary(Binary::Add, Strided(&[], &[0, 1]), Strided(&[], &[5, 1]), &mut [], &[0, 5], Par(1));
}

#[test]
fn broadcasts_on_threads() {
    let (rows, cols) = (300, 1001);
    let (a, b) = (normals(rows * cols, 8), normals(cols, 9));
    let mut out = vec![f32::NAN; rows * cols];
    let operands = (Strided(&a, &[cols, 1]), Strided(&b, &[0, 1]));
    broadcast_binary(Binary::Mul, operands.0, operands.1, &mut out, &[rows, cols], Par(3));
    assert!(out.iter().enumerate().all(|(i, &v)| v == a[i] * b[i % cols]));
}

#[test]
fn adds_in_place() {
    let (mut out, x) = (vec![1.0f32; 9], normals(9, 1));
    add_assign(&mut out, &x, Par(1));
    assert!(out.iter().zip(&x).all(|(o, x)| *o == 1.0 + x));
}
