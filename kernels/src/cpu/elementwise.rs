//! Element-wise functions of one and two tensors.

use super::math::{exp, ln, normal_cdf, sigmoid};
use super::nd::{merge, row_major, span, walk};
use super::par::{Par, Rows};
use super::simd::simd;

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `-x`
    Neg,
    /// `e^x`
    Exp,
    /// The natural logarithm.
    Log,
    /// The square root.
    Sqrt,
    /// `1 / sqrt x`
    Rsqrt,
    /// `1 / x`
    Recip,
    /// `x^2`
    Square,
    /// `x sigmoid(x)`
    Silu,
    /// GELU in its tanh form, GPT-2's `gelu_new`: `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`
    Gelu,
    /// GELU in its exact form, Hugging Face's `gelu`: `x/2 (1 + erf(x / sqrt 2))`
    GeluErf,
    /// `c x`
    Scale(f32),
    /// `x + c`
    Shift(f32),
    /// `min(x, c)`; `c` where `x` is no number.
    AtMost(f32),
}

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a b`
    Mul,
    /// `a / b`
    Div,
    /// The larger one.
    Max,
    /// `b` times the derivative of [`Unary::Silu`] at `a`.
    SiluGrad,
    /// `b` times the derivative of [`Unary::Gelu`] at `a`.
    GeluGrad,
    /// `b` times the derivative of [`Unary::GeluErf`] at `a`.
    GeluErfGrad,
}

/// `out = op(x)`
///
/// # Panics
/// If the sizes differ.
pub fn unary(op: Unary, x: &[f32], out: &mut [f32], par: Par) {
    assert_eq!(x.len(), out.len(), "as many results as arguments");
    par.rows(x.len(), 1, (Rows(x, 1), Rows(out, 1)), &|_, (x, out)| unary_run(op, x.0, out.0));
}

/// `out = op(a, b)`
///
/// # Panics
/// If the sizes differ.
pub fn binary(op: Binary, a: &[f32], b: &[f32], out: &mut [f32], par: Par) {
    assert!(a.len() == out.len() && b.len() == out.len(), "as many results as arguments");
    let parts = (Rows(a, 1), Rows(b, 1), Rows(out, 1));
    par.rows(a.len(), 1, parts, &|_, (a, b, out)| binary_run(op, a.0, b.0, out.0));
}

/// `out += x`
///
/// # Panics
/// If the sizes differ.
pub fn add_assign(out: &mut [f32], x: &[f32], par: Par) {
    assert_eq!(x.len(), out.len(), "as many results as arguments");
    par.rows(x.len(), 1, (Rows(x, 1), Rows(out, 1)), &|_, (x, out)| super::reduce::add_rows(x.0, out.0));
}

/// An operand of [`broadcast_binary`]: its elements, and its stride in each dimension of the result, 0 where it repeats.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a>(pub &'a [f32], pub &'a [usize]);

/// `out = op(a, b)` for `out` of shape `dims`, with operands that repeat along some dimensions or lie permuted.
///
/// # Panics
/// If `out` has not the shape `dims`, or an operand is too short for its strides.
pub fn broadcast_binary(op: Binary, a: Strided<'_>, b: Strided<'_>, out: &mut [f32], dims: &[usize], par: Par) {
    assert_eq!(out.len(), dims.iter().product(), "out has the shape of dims");
    let a_values = &a.0[..span(dims, a.1)];
    let b_values = &b.0[..span(dims, b.1)];
    if out.is_empty() {
        return;
    }
    let (mut dims, [mut a, mut b, mut to]) = merge(dims, [a.1, b.1, &row_major(dims)]);
    if dims.is_empty() {
        [&mut dims, &mut a, &mut b, &mut to].into_iter().for_each(|list| list.push(1));
    }
    par.rows(dims[0], to[0], Rows(out, to[0]), &|range, out| {
        let mut dims = dims.clone();
        dims[0] = range.len();
        let start = [range.start * a[0], range.start * b[0], 0];
        let last = dims.len() - 1;
        let (n, step) = (dims[last], [a[last], b[last]]);
        walk(&dims[..last], [&a[..last], &b[..last], &to[..last]], start, &mut |[i, j, o]| {
            run_strided(op, &a_values[i..], &b_values[j..], step, &mut out.0[o..o + n]);
        });
    });
}

/// One contiguous run of results.
fn run_strided(op: Binary, a: &[f32], b: &[f32], step: [usize; 2], out: &mut [f32]) {
    let n = out.len();
    match step {
        [1, 1] => binary_run(op, &a[..n], &b[..n], out),
        [1, 0] => right_constant_run(op, &a[..n], b[0], out),
        [0, 1] => left_constant_run(op, a[0], &b[..n], out),
        [i, j] => {
            for (k, out) in out.iter_mut().enumerate() {
                binary_run(op, &a[k * i..][..1], &b[k * j..][..1], std::slice::from_mut(out));
            }
        }
    }
}

/// Evaluates `$body` with `$f` bound to the function of two numbers that `$op` names.
macro_rules! with_binary {
    ($op:expr, $f:ident => $body:expr) => {
        match $op {
            Binary::Add => with_binary!(@ $f, a, b, a + b, $body),
            Binary::Sub => with_binary!(@ $f, a, b, a - b, $body),
            Binary::Mul => with_binary!(@ $f, a, b, a * b, $body),
            Binary::Div => with_binary!(@ $f, a, b, a / b, $body),
            Binary::Max => with_binary!(@ $f, a, b, if a > b || a.is_nan() { a } else { b }, $body),
            Binary::SiluGrad => with_binary!(@ $f, a, b, b * silu_slope(a), $body),
            Binary::GeluGrad => with_binary!(@ $f, a, b, b * gelu_slope(a), $body),
            Binary::GeluErfGrad => with_binary!(@ $f, a, b, b * gelu_erf_slope(a), $body),
        }
    };
    (@ $f:ident, $a:ident, $b:ident, $value:expr, $body:expr) => {{
        #[inline(always)]
        fn $f($a: f32, $b: f32) -> f32 {
            $value
        }
        $body
    }};
}

simd! {
    fn unary_run(op: Unary, x: &[f32], out: &mut [f32]) {
        match op {
            Unary::Neg => map(x, out, #[inline(always)] |x| -x),
            Unary::Exp => map(x, out, exp),
            Unary::Log => map(x, out, ln),
            Unary::Sqrt => map(x, out, #[inline(always)] |x| x.sqrt()),
            Unary::Rsqrt => map(x, out, #[inline(always)] |x| 1.0 / x.sqrt()),
            Unary::Recip => map(x, out, #[inline(always)] |x| 1.0 / x),
            Unary::Square => map(x, out, #[inline(always)] |x| x * x),
            Unary::Silu => map(x, out, #[inline(always)] |x| x * sigmoid(x)),
            Unary::Gelu => map(x, out, #[inline(always)] |x| x * sigmoid(gelu_argument(x))),
            Unary::GeluErf => map(x, out, #[inline(always)] |x| x * normal_cdf(x)),
            Unary::Scale(c) => map(x, out, #[inline(always)] |x| c * x),
            Unary::Shift(c) => map(x, out, #[inline(always)] |x| x + c),
            Unary::AtMost(c) => map(x, out, #[inline(always)] |x| if x < c { x } else { c }),
        }
    }

    fn binary_run(op: Binary, a: &[f32], b: &[f32], out: &mut [f32]) {
        with_binary!(op, f => {
            for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) {
                *o = f(a, b);
            }
        });
    }

    fn right_constant_run(op: Binary, a: &[f32], b: f32, out: &mut [f32]) {
        with_binary!(op, f => map(a, out, #[inline(always)] |a| f(a, b)));
    }

    fn left_constant_run(op: Binary, a: f32, b: &[f32], out: &mut [f32]) {
        with_binary!(op, f => map(b, out, #[inline(always)] |b| f(a, b)));
    }
}

#[inline(always)]
fn map(x: &[f32], out: &mut [f32], f: impl Fn(f32) -> f32) {
    for (o, &x) in out.iter_mut().zip(x) {
        *o = f(x);
    }
}

/// `2 sqrt(2 / pi)`
const TWO_SQRT_2_OVER_PI: f32 = 1.595_769_2;

/// Twice the argument of GELU's tanh: `(1 + tanh u) / 2` is `sigmoid(2u)`.
#[inline(always)]
fn gelu_argument(x: f32) -> f32 {
    TWO_SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)
}

#[inline(always)]
fn silu_slope(x: f32) -> f32 {
    let s = sigmoid(x);
    s * (1.0 + x * (1.0 - s))
}

#[inline(always)]
fn gelu_slope(x: f32) -> f32 {
    let s = sigmoid(gelu_argument(x));
    s + x * s * (1.0 - s) * TWO_SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044_715 * x * x)
}

#[inline(always)]
fn gelu_erf_slope(x: f32) -> f32 {
    const ONE_OVER_SQRT_2_PI: f32 = 0.398_942_3;
    normal_cdf(x) + x * ONE_OVER_SQRT_2_PI * exp(-0.5 * x * x)
}

#[cfg(test)]
#[path = "elementwise_tests.rs"]
mod tests;
