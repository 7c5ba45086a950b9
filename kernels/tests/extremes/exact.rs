//! The elementwise functions in f64, by their definitions.

use super::{Binary, Unary};
use std::f64::consts::SQRT_2;

pub(super) fn unary(op: Unary, x: f64) -> f64 {
    match op {
        Unary::Neg => -x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Square => x * x,
        Unary::Tanh => x.tanh(),
        Unary::Erf => erf(x),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Floor => x.floor(),
        Unary::Sigmoid => sigmoid(x),
        Unary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Unary::Silu => x * sigmoid(x),
        Unary::Gelu => x * sigmoid(gelu_argument(x)),
        Unary::GeluErf => x * normal_cdf(x),
        Unary::ReluSquared => x.max(0.0).powi(2),
        Unary::Scale(by) => f64::from(by) * x,
        Unary::Shift(by) => x + f64::from(by),
        Unary::AtMost(max) => x.min(max.into()),
        Unary::AtLeast(min) => x.max(min.into()),
    }
}

pub(super) fn binary(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
        Binary::SigmoidGrad => b * a * (1.0 - a),
        Binary::SiluGrad => b * (sigmoid(a) + a * sigmoid(a) * sigmoid(-a)),
        Binary::GeluGrad => b * gelu_slope(a),
        Binary::GeluErfGrad => b * (normal_cdf(a) + a * (-a * a / 2.0).exp() * FACTOR / 4.0),
        Binary::ReluSquaredGrad => 2.0 * a.max(0.0) * b,
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `erfc` by its continued fraction far out, and by the series of erf near 0.
fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let tail = if z < 2.5 {
        let (mut term, mut sum) = (z, z);
        for n in 1..120 {
            term *= -z * z / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        1.0 - std::f64::consts::FRAC_2_SQRT_PI * sum
    } else {
        let fraction = (1..200).rev().fold(0.0, |below, n| f64::from(n) / 2.0 / (z + below));
        (-z * z).exp() / ((z + fraction) * std::f64::consts::PI.sqrt())
    };
    if x > 0.0 { 1.0 - tail / 2.0 } else { tail / 2.0 }
}

/// Near 0 by its first terms, which leave x^7 / 21.
fn erf(x: f64) -> f64 {
    if x.abs() < 0.02 {
        return std::f64::consts::FRAC_2_SQRT_PI * (x - x.powi(3) / 3.0 + x.powi(5) / 10.0);
    }
    if x > 0.0 { 1.0 - 2.0 * normal_cdf(-x * SQRT_2) } else { 2.0 * normal_cdf(x * SQRT_2) - 1.0 }
}

/// `2 sqrt(2 / pi)`
const FACTOR: f64 = 2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;

fn gelu_argument(x: f64) -> f64 {
    FACTOR * (x + 0.044_715 * x * x * x)
}

fn gelu_slope(x: f64) -> f64 {
    let (s, rest) = (sigmoid(gelu_argument(x)), sigmoid(-gelu_argument(x)));
    s + if rest * s == 0.0 { 0.0 } else { x * s * rest * FACTOR * (1.0 + 3.0 * 0.044_715 * x * x) }
}
