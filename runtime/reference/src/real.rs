//! Number types of the reference evaluator.

use super::ops::{self, Context};
use super::tensor::Array;
use ir::ops::Op;
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// f32 or f64.
pub trait Real:
    Copy
    + Default
    + Debug
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + Sum
{
    /// The nearest number.
    fn of(x: f64) -> Self;

    /// The same number as f64.
    fn to_f64(self) -> f64;

    /// `e^x`
    fn exp(self) -> Self;

    /// The natural logarithm.
    fn ln(self) -> Self;

    /// The square root.
    fn sqrt(self) -> Self;

    /// The hyperbolic tangent.
    fn tanh(self) -> Self;

    /// The sine, of radians.
    fn sin(self) -> Self;

    /// The cosine, of radians.
    fn cos(self) -> Self;

    /// The larger of two.
    fn max(self, other: Self) -> Self;

    /// The smaller of two.
    fn min(self, other: Self) -> Self;

    /// The error function.
    fn erf(self) -> Self {
        Self::of(erf(self.to_f64()))
    }

    /// 0
    fn zero() -> Self {
        Self::of(0.0)
    }

    /// 1
    fn one() -> Self {
        Self::of(1.0)
    }

    /// The results of an op ([`ops::evaluate`]). As a function of one number type it is compiled with this crate, and not again
    /// with each that evaluates.
    ///
    /// # Errors
    /// As of [`ops::evaluate`].
    fn evaluate(
        op: &Op,
        operands: &[&Array<Self>],
        dims: &[Vec<usize>],
        context: Context,
    ) -> Result<Vec<Array<Self>>, String>;
}

macro_rules! real {
    ($($float:ident),*) => {$(
        impl Real for $float {
            fn of(x: f64) -> Self {
                x as $float
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn exp(self) -> Self {
                $float::exp(self)
            }
            fn ln(self) -> Self {
                $float::ln(self)
            }
            fn sqrt(self) -> Self {
                $float::sqrt(self)
            }
            fn tanh(self) -> Self {
                $float::tanh(self)
            }
            fn sin(self) -> Self {
                $float::sin(self)
            }
            fn cos(self) -> Self {
                $float::cos(self)
            }
            fn max(self, other: Self) -> Self {
                $float::max(self, other)
            }
            fn min(self, other: Self) -> Self {
                $float::min(self, other)
            }
            fn evaluate(
                op: &Op,
                operands: &[&Array<Self>],
                dims: &[Vec<usize>],
                context: Context,
            ) -> Result<Vec<Array<Self>>, String> {
                ops::evaluate(op, operands, dims, context)
            }
        }
    )*};
}

real!(f32, f64);

/// The error function by its series without cancellation, Abramowitz and Stegun 7.1.6:
/// `2 / sqrt(pi) e^(-x^2) sum of 2^n x^(2n+1) / (1 3 .. (2n+1))`. Beyond 6 it is 1 to the last bit.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    // A NaN ends it.
    while term.abs() > 0.25 * f64::EPSILON * sum.abs() {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_is_close() {
        // Abramowitz and Stegun, table 7.1.
        for (x, exact) in [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265), (7.0, 1.0)]
        {
            let [above, below] = [erf(x) - exact, erf(-x) + exact];
            assert!(f64::abs(above) < 1e-10 && f64::abs(below) < 1e-10, "erf({x})");
        }
        assert!(erf(f64::NAN).is_nan());
    }
}
