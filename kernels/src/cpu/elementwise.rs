//! Elementwise functions of one and two tensors.
//!
//! An operand may be [`Source::Own`]: then the result overwrites the operand, with the same bits as out of place.

use super::math::{ANGLES, cos, erf, exp, ln, normal_cdf, sigmoid, sin, tanh};
use super::nd::{merge, row_major, span, walk};
use super::par::{Par, Rows};
use super::simd::simd;
use super::source::Source;

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
    /// The hyperbolic tangent.
    Tanh,
    /// The error function.
    Erf,
    /// The sine, of radians.
    Sin,
    /// The cosine, of radians.
    Cos,
    /// The largest integer that is not above `x`.
    Floor,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// `x sigmoid(x)`
    Silu,
    /// GELU in its tanh form, GPT-2's `gelu_new`: `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`
    Gelu,
    /// GELU in its exact form, Hugging Face's `gelu`: `x/2 (1 + erf(x / sqrt 2))`
    GeluErf,
    /// `max(x, 0)^2`
    ReluSquared,
    /// `c x`
    Scale(f32),
    /// `x + c`
    Shift(f32),
    /// The smaller one of `x` and `c`; `x` if it is not a number.
    AtMost(f32),
    /// The larger one of `x` and `c`; `x` if it is not a number.
    AtLeast(f32),
}

impl Unary {
    /// Every function, with some constant.
    pub const ALL: [Unary; 21] = [
        Unary::Neg,
        Unary::Exp,
        Unary::Log,
        Unary::Sqrt,
        Unary::Rsqrt,
        Unary::Recip,
        Unary::Square,
        Unary::Tanh,
        Unary::Erf,
        Unary::Sin,
        Unary::Cos,
        Unary::Floor,
        Unary::Sigmoid,
        Unary::Silu,
        Unary::Gelu,
        Unary::GeluErf,
        Unary::ReluSquared,
        Unary::Scale(0.7),
        Unary::Shift(-3.5),
        Unary::AtMost(0.5),
        Unary::AtLeast(0.5),
    ];
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
    /// The smaller one.
    Min,
    /// `b` times the derivative of [`Unary::Sigmoid`] where its result is `a`.
    SigmoidGrad,
    /// `b` times the derivative of [`Unary::Silu`] at `a`.
    SiluGrad,
    /// `b` times the derivative of [`Unary::Gelu`] at `a`.
    GeluGrad,
    /// `b` times the derivative of [`Unary::GeluErf`] at `a`.
    GeluErfGrad,
    /// `b` times the derivative of [`Unary::ReluSquared`] at `a`.
    ReluSquaredGrad,
}

impl Binary {
    /// Every function.
    pub const ALL: [Binary; 11] = [
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Max,
        Binary::Min,
        Binary::SigmoidGrad,
        Binary::SiluGrad,
        Binary::GeluGrad,
        Binary::GeluErfGrad,
        Binary::ReluSquaredGrad,
    ];
}

/// `out = op(x)`
///
/// # Panics
/// If the sizes differ.
pub fn unary<'x>(op: Unary, x: impl Into<Source<'x>>, out: &mut [f32], par: Par) {
    let x = x.into();
    assert!(x.has(out.len()), "one result per argument");
    par.rows(out.len(), 1, (Rows(x, 1), Rows(out, 1)), &|_, (x, out)| unary_run(op, x.0, out.0));
}

/// `out = op(a, b)`
///
/// # Panics
/// If the sizes differ.
pub fn binary<'a, 'b>(op: Binary, a: impl Into<Source<'a>>, b: impl Into<Source<'b>>, out: &mut [f32], par: Par) {
    let (a, b) = (a.into(), b.into());
    assert!(a.has(out.len()) && b.has(out.len()), "one result per argument");
    par.rows(out.len(), 1, (Rows(a, 1), Rows(b, 1), Rows(out, 1)), &|_, (a, b, out)| binary_run(op, a.0, b.0, out.0));
}

/// `out += x`
///
/// # Panics
/// If the sizes differ.
pub fn add_assign(out: &mut [f32], x: &[f32], par: Par) {
    binary(Binary::Add, Source::Own, x, out, par);
}

/// An operand of [`broadcast_binary`]: its elements, and its stride in each dimension of the result, 0 where it repeats.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a>(pub Source<'a>, pub &'a [usize]);

/// `out = op(a, b)` for `out` of shape `dims`, with operands that repeat along some dimensions or are permuted.
///
/// # Panics
/// If `out` has not the shape `dims`, an operand is too short for its strides, or one that is the result has other
/// strides than a dense tensor.
pub fn broadcast_binary(op: Binary, a: Strided<'_>, b: Strided<'_>, out: &mut [f32], dims: &[usize], par: Par) {
    assert_eq!(out.len(), dims.iter().product(), "out has the shape of dims");
    let [a_values, b_values] =
        [a, b].map(|x| if let Source::Other(values) = x.0 { values[..span(dims, x.1)].into() } else { x.0 });
    if out.is_empty() {
        return;
    }
    let dense = row_major(dims);
    for x in [a, b] {
        let same = x.1.iter().zip(&dense).zip(dims).all(|((x, dense), &size)| size == 1 || x == dense);
        assert!(same || x.0.slice().is_some(), "the result is dense");
    }
    let (mut dims, [mut a, mut b, mut to]) = merge(dims, [a.1, b.1, &dense]);
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
            run_strided(op, [(a_values, i), (b_values, j)], step, &mut out.0[o..o + n]);
        });
    });
}

/// One contiguous run of results, from operands that begin at some index and go in steps.
fn run_strided(op: Binary, operands: [(Source<'_>, usize); 2], step: [usize; 2], out: &mut [f32]) {
    let n = out.len();
    let [a, b] = operands.map(|(x, from)| move |at: usize, n: usize| x.part(from + at..from + at + n));
    match (step, a(0, 1), b(0, 1)) {
        ([1, 1], ..) => binary_run(op, a(0, n), b(0, n), out),
        ([1, 0], _, Source::Other(b)) => right_constant_run(op, a(0, n), b[0], out),
        ([0, 1], Source::Other(a), _) => left_constant_run(op, a[0], b(0, n), out),
        ([i, j], ..) => {
            for (k, out) in out.iter_mut().enumerate() {
                binary_run(op, a(k * i, 1), b(k * j, 1), std::slice::from_mut(out));
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
            Binary::Min => with_binary!(@ $f, a, b, if a < b || a.is_nan() { a } else { b }, $body),
            Binary::SigmoidGrad => with_binary!(@ $f, a, b, b * (a * (1.0 - a)), $body),
            Binary::SiluGrad => with_binary!(@ $f, a, b, b * silu_slope::<FMA>(a), $body),
            Binary::GeluGrad => with_binary!(@ $f, a, b, b * gelu_slope::<FMA>(a), $body),
            Binary::GeluErfGrad => with_binary!(@ $f, a, b, b * gelu_erf_slope::<FMA>(a), $body),
            Binary::ReluSquaredGrad => with_binary!(@ $f, a, b, 2.0 * (b * relu(a)), $body),
        }
    };
    (@ $f:ident, $a:ident, $b:ident, $value:expr, $body:expr) => {{
        #[inline(always)]
        fn function<const FMA: bool>($a: f32, $b: f32) -> f32 {
            $value
        }
        let $f = function::<FMA>;
        $body
    }};
}

simd! {
    fn unary_run(op: Unary, x: Source<'_>, out: &mut [f32]) {
        match op {
            Unary::Neg => map(x, out, #[inline(always)] |x| -x),
            Unary::Exp => map(x, out, exp::<FMA>),
            Unary::Log => map(x, out, ln::<FMA>),
            Unary::Sqrt => map(x, out, #[inline(always)] |x| x.sqrt()),
            Unary::Rsqrt => map(x, out, #[inline(always)] |x| 1.0 / x.sqrt()),
            Unary::Recip => map(x, out, #[inline(always)] |x| 1.0 / x),
            Unary::Square => map(x, out, #[inline(always)] |x| x * x),
            Unary::Tanh => map(x, out, tanh::<FMA>),
            Unary::Erf => map(x, out, erf::<FMA>),
            Unary::Sin => map_angles(x, out, sin, f64::sin),
            Unary::Cos => map_angles(x, out, cos, f64::cos),
            Unary::Floor => map(x, out, #[inline(always)] |x| x.floor()),
            Unary::Sigmoid => map(x, out, sigmoid::<FMA>),
            Unary::Silu => map(x, out, #[inline(always)] |x| x * sigmoid::<FMA>(x)),
            Unary::Gelu => map(x, out, #[inline(always)] |x| x * sigmoid::<FMA>(gelu_argument(x))),
            Unary::GeluErf => map(x, out, #[inline(always)] |x| x * normal_cdf::<FMA>(x)),
            Unary::ReluSquared => map(x, out, #[inline(always)] |x| relu(x) * relu(x)),
            Unary::Scale(c) => map(x, out, #[inline(always)] |x| c * x),
            Unary::Shift(c) => map(x, out, #[inline(always)] |x| x + c),
            Unary::AtMost(c) => map(x, out, #[inline(always)] |x| if x > c { c } else { x }),
            Unary::AtLeast(c) => map(x, out, #[inline(always)] |x| if x < c { c } else { x }),
        }
    }

    fn binary_run(op: Binary, a: Source<'_>, b: Source<'_>, out: &mut [f32]) {
        with_binary!(op, f => match (a, b) {
            (Source::Other(a), Source::Other(b)) => {
                for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) {
                    *o = f(a, b);
                }
            }
            (Source::Own, Source::Other(b)) => {
                for (o, &b) in out.iter_mut().zip(b) {
                    *o = f(*o, b);
                }
            }
            (Source::Other(a), Source::Own) => {
                for (o, &a) in out.iter_mut().zip(a) {
                    *o = f(a, *o);
                }
            }
            (Source::Own, Source::Own) => map(a, out, #[inline(always)] |a| f(a, a)),
        });
    }

    fn right_constant_run(op: Binary, a: Source<'_>, b: f32, out: &mut [f32]) {
        with_binary!(op, f => map(a, out, #[inline(always)] |a| f(a, b)));
    }

    fn left_constant_run(op: Binary, a: f32, b: Source<'_>, out: &mut [f32]) {
        with_binary!(op, f => map(b, out, #[inline(always)] |b| f(a, b)));
    }
}

#[inline(always)]
fn map(x: Source<'_>, out: &mut [f32], f: impl Fn(f32) -> f32) {
    match x {
        Source::Own => out.iter_mut().for_each(
            #[inline(always)]
            |o| *o = f(*o),
        ),
        Source::Other(x) => {
            for (o, &x) in out.iter_mut().zip(x) {
                *o = f(x);
            }
        }
    }
}

/// As [`map`], for a function that holds up to [`ANGLES`]: runs with an angle beyond take the slow one.
#[inline(always)]
fn map_angles(x: Source<'_>, out: &mut [f32], f: impl Fn(f32) -> f32, slow: fn(f64) -> f64) {
    const RUN: usize = 256;
    for (run, out) in out.chunks_mut(RUN).enumerate() {
        if let Source::Other(x) = x {
            out.copy_from_slice(&x[run * RUN..][..out.len()]);
        }
        if out.iter().all(
            #[inline(always)]
            |x| x.abs() <= ANGLES,
        ) {
            map(Source::Own, out, &f);
        } else {
            out.iter_mut().for_each(|x| *x = slow(f64::from(*x)) as f32);
        }
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
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[inline(always)]
fn silu_slope<const FMA: bool>(x: f32) -> f32 {
    let s = sigmoid::<FMA>(x);
    s * (1.0 + x * (1.0 - s))
}

/// Beyond 32 the slope is 0 or 1 to the last bit, and the square of a large argument would overflow.
#[inline(always)]
fn gelu_slope<const FMA: bool>(x: f32) -> f32 {
    let x = if x < -32.0 { -32.0 } else { x };
    let x = if x > 32.0 { 32.0 } else { x };
    let s = sigmoid::<FMA>(gelu_argument(x));
    s + x * s * (1.0 - s) * TWO_SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044_715 * x * x)
}

#[inline(always)]
fn gelu_erf_slope<const FMA: bool>(x: f32) -> f32 {
    const ONE_OVER_SQRT_2_PI: f32 = 0.398_942_3;
    normal_cdf::<FMA>(x) + x * ONE_OVER_SQRT_2_PI * exp::<FMA>(-0.5 * x * x)
}

#[cfg(test)]
#[path = "elementwise_tests.rs"]
mod tests;
