//! Elementwise functions of one and two tensors.
//!
//! An operand may be [`Source::Own`]: then the result overwrites the operand, with the same bits as out of place.

use super::math::{ANGLES, cos, erf, exp, ln, normal_cdf, sigmoid, sin, softplus, tanh};
use super::nd::{merge, row_major, span, walk};
use super::par::{Par, Rows};
use super::simd::simd;
use super::source::Source;
use crate::functions::{binary_functions, unary_functions};

pub use crate::functions::{Binary, Unary};

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

macro_rules! run_unary {
    ({ |$element:ident| $value:expr } $x:ident $out:ident) => {
        map(
            $x,
            $out,
            #[inline(always)]
            |$element| $value,
        )
    };
    ({ angles($f:path, $slow:path) } $x:ident $out:ident) => {
        map_angles($x, $out, $f, $slow)
    };
}

macro_rules! unary_runs {
    ($($(#[$doc:meta])*
       $kind:ident $(($constant:ident: $ty:ty = $some:expr))? $name:literal: $run:tt, $body:literal, $bound:expr;)*
    ) => {
        simd! {
            fn unary_run(op: Unary, x: Source<'_>, out: &mut [f32]) {
                match op { $(Unary::$kind $(($constant))? => run_unary!($run x out)),* }
            }
        }
    };
}
unary_functions!(unary_runs);

macro_rules! binary_runs {
    ($($(#[$doc:meta])* $kind:ident $name:literal: |$a:ident, $b:ident| $value:expr, $body:literal, $bound:expr;)*) => {
        simd! {
            fn binary_run(op: Binary, a: Source<'_>, b: Source<'_>, out: &mut [f32]) {
                match op { $(Binary::$kind => zip(a, b, out, #[inline(always)] |$a: f32, $b: f32| $value)),* }
            }

            fn right_constant_run(op: Binary, a: Source<'_>, constant: f32, out: &mut [f32]) {
                match op {
                    $(Binary::$kind => map(a, out, #[inline(always)] |$a: f32| { let $b = constant; $value })),*
                }
            }

            fn left_constant_run(op: Binary, constant: f32, b: Source<'_>, out: &mut [f32]) {
                match op {
                    $(Binary::$kind => map(b, out, #[inline(always)] |$b: f32| { let $a = constant; $value })),*
                }
            }
        }
    };
}
binary_functions!(binary_runs);

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

/// `out = f(a, b)`
#[inline(always)]
fn zip(a: Source<'_>, b: Source<'_>, out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    match (a, b) {
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
        (Source::Own, Source::Own) => map(
            a,
            out,
            #[inline(always)]
            |a| f(a, a),
        ),
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

#[cfg(test)]
#[path = "elementwise_tests.rs"]
mod tests;
