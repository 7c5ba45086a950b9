//! Functions of one element, of two elements, and of a norm.

use super::dense::places;
use crate::real::Real;
use crate::tensor::{Tensor, walk};
use ir::ops::{Binary, BinaryKind, UnaryKind};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// `f(x)` of each element. A cast does not change the number.
pub(super) fn unary<R: Real>(kind: UnaryKind, x: &Tensor<R>) -> Tensor<R> {
    let one = R::one();
    x.map(|x| match kind {
        UnaryKind::Neg => -x,
        UnaryKind::Exp => x.exp(),
        UnaryKind::Log => x.ln(),
        UnaryKind::Sqrt => x.sqrt(),
        UnaryKind::Rsqrt => one / x.sqrt(),
        UnaryKind::Recip => one / x,
        UnaryKind::Square => x * x,
        UnaryKind::Tanh => x.tanh(),
        UnaryKind::Erf => x.erf(),
        UnaryKind::Sin => x.sin(),
        UnaryKind::Cos => x.cos(),
        UnaryKind::Stop => x,
        UnaryKind::Floor => R::of(x.to_f64().floor()),
        UnaryKind::Sigmoid => sigmoid(x),
        UnaryKind::Softplus => x.max(R::zero()) + ln_of_next((-x.max(-x)).exp()),
        UnaryKind::Silu => x * sigmoid(x),
        UnaryKind::Gelu => R::of(0.5) * x * (one + gelu_tanh(x)),
        UnaryKind::GeluErf => x * normal_cdf(x),
        UnaryKind::ReluSquared => x.max(R::zero()) * x.max(R::zero()),
        UnaryKind::Scale(by) => R::of(by) * x,
        UnaryKind::Shift(by) => x + R::of(by),
        UnaryKind::AtMost(max) => {
            if x > R::of(max) {
                R::of(max)
            } else {
                x
            }
        }
        UnaryKind::AtLeast(min) => {
            if x < R::of(min) {
                R::of(min)
            } else {
                x
            }
        }
        UnaryKind::Cast(_) => x,
    })
}

/// `f(a, b)` of each pair of elements, an operand repeated along the letters that it lacks.
pub(super) fn binary<R: Real>(op: &Binary, a: &Tensor<R>, b: &Tensor<R>, dims: &[usize]) -> Tensor<R> {
    let mut out = Tensor::zeros(dims);
    let (a_places, b_places) = match &op.equation {
        Some(eq) => (places(&eq.result, &eq.operands[0], &a.dims), places(&eq.result, &eq.operands[1], &b.dims)),
        None => (a.strides(), b.strides()),
    };
    walk(dims, [&a_places, &b_places, &out.strides()], [0; 3], &mut |[i, j, o]| {
        out.data[o] = pair(op.kind, a.data[i], b.data[j]);
    });
    out
}

fn pair<R: Real>(kind: BinaryKind, a: R, b: R) -> R {
    match kind {
        BinaryKind::Add => a + b,
        BinaryKind::Sub => a - b,
        BinaryKind::Mul => a * b,
        BinaryKind::Div => a / b,
        BinaryKind::Max => a.max(b),
        BinaryKind::Min => a.min(b),
        BinaryKind::SigmoidGrad => b * a * (R::one() - a),
        BinaryKind::SiluGrad => b * silu_slope(a),
        BinaryKind::GeluGrad => b * gelu_slope(a),
        BinaryKind::GeluErfGrad => b * gelu_erf_slope(a),
        BinaryKind::ReluSquaredGrad => b * R::of(2.0) * a.max(R::zero()),
    }
}

/// `1 / (1 + e^-x)`
fn sigmoid<R: Real>(x: R) -> R {
    R::one() / (R::one() + (-x).exp())
}

/// `ln(1 + x)`, also where `1 + x` is 1 (Goldberg 1991, theorem 4).
fn ln_of_next<R: Real>(x: R) -> R {
    let next = R::one() + x;
    if next == R::one() { x } else { next.ln() * x / (next - R::one()) }
}

fn silu_slope<R: Real>(x: R) -> R {
    let s = sigmoid(x);
    s * (R::one() + x * (R::one() - s))
}

/// The cubic coefficient of GELU's tanh form (Hendrycks and Gimpel 2016).
const CUBIC: f64 = 0.044_715;
/// `sqrt(2 / pi)`
const SQRT_2_OVER_PI: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

/// `tanh(sqrt(2 / pi) (x + 0.044715 x^3))`
fn gelu_tanh<R: Real>(x: R) -> R {
    (R::of(SQRT_2_OVER_PI) * (x + R::of(CUBIC) * x * x * x)).tanh()
}

fn gelu_slope<R: Real>(x: R) -> R {
    let (one, half, t) = (R::one(), R::of(0.5), gelu_tanh(x));
    let inner = R::of(SQRT_2_OVER_PI) * (one + R::of(3.0 * CUBIC) * x * x);
    half * (one + t) + half * x * (one - t * t) * inner
}

/// The normal distribution function.
fn normal_cdf<R: Real>(x: R) -> R {
    R::of(0.5) * (R::one() + (x * R::of(FRAC_1_SQRT_2)).erf())
}

fn gelu_erf_slope<R: Real>(x: R) -> R {
    let density = R::of(0.5 * SQRT_2_OVER_PI) * (R::of(-0.5) * x * x).exp();
    normal_cdf(x) + x * density
}

/// `min(1, max / (norm + 1e-6))`
pub(super) fn clip_factor<R: Real>(max: f64, norm: &Tensor<R>) -> Tensor<R> {
    norm.map(|norm| (R::of(max) / (norm + R::of(1e-6))).min(R::one()))
}
