//! Rounding to the formats below f32, by arithmetic on f64.

use super::random::uniform;
use super::real::Real;
use ir::types::DType;

/// A binary format: bits of mantissa, the exponent of the least normal number, the largest number, and whether larger ones become it
/// rather than infinite.
struct Format {
    mantissa: i32,
    least_exponent: i32,
    largest: f64,
    saturates: bool,
}

/// The format of a type; none for f32, in which the evaluator's own numbers stand, and for integers.
fn format(dtype: DType) -> Option<Format> {
    let (mantissa, least_exponent, largest, saturates) = match dtype {
        DType::F32 | DType::I32 => return None,
        DType::BF16 => (7, -126, (2.0 - 2f64.powi(-7)) * 2f64.powi(127), false),
        DType::F16 => (10, -14, 65504.0, false),
        DType::F8E4M3 => (3, -6, 448.0, true),
        DType::F8E5M2 => (2, -14, 57344.0, true),
    };
    Some(Format { mantissa, least_exponent, largest, saturates })
}

/// The largest number of a format below f32.
pub(super) fn largest(dtype: DType) -> Option<f64> {
    format(dtype).map(|format| format.largest)
}

/// How results go to the numbers of their types.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rounding {
    /// To the nearest number, of two the even one. That is the meaning of a program.
    #[default]
    Nearest,
    /// Up or down at random, under a key, more often to the nearer one. Results of several keys lie apart as far as rounding can move them
    /// (Parker, "Monte Carlo Arithmetic", 1997).
    Random([u32; 2]),
    /// Not at all.
    None,
}

impl Rounding {
    /// The number of a type to which a number goes, the `index`-th of those that are rounded under a key.
    pub(super) fn round(self, dtype: DType, x: f64, index: u64) -> f64 {
        match self {
            Rounding::Nearest => nearest(dtype, x, 0.0),
            Rounding::Random(key) => nearest(dtype, x, f64::from(uniform(key, index)) - 0.5),
            Rounding::None => x,
        }
    }
}

/// Rounding of numbers within an op: to the type of its first operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Within {
    /// How they are rounded.
    pub rounding: Rounding,
    /// That type.
    pub dtype: DType,
}

impl Default for Within {
    fn default() -> Within {
        Within { rounding: Rounding::Nearest, dtype: DType::F32 }
    }
}

impl Within {
    /// The number of the type to which the `index`-th number of a kind goes. Those of another kind go another way at random.
    pub(super) fn round<R: Real>(self, x: R, kind: u32, index: u64) -> R {
        let rounding = match self.rounding {
            Rounding::Random([first, second]) => Rounding::Random([first, !second ^ kind]),
            other => other,
        };
        if self.dtype == DType::F32 { x } else { R::of(rounding.round(self.dtype, x.to_f64(), index)) }
    }
}

/// The number of a type that is nearest to `x` and a part of the last place of `x`; of two the even one.
fn nearest(dtype: DType, x: f64, part: f64) -> f64 {
    let Some(format) = format(dtype) else { return x };
    if x.is_nan() || x == 0.0 || x.is_infinite() && !format.saturates {
        return x;
    }
    // Numbers below the normal ones of f64 are below half of the least number of every format.
    let exponent = ((x.abs().to_bits() >> 52) as i32 - 1023).max(format.least_exponent);
    let unit = 2f64.powi(exponent - format.mantissa);
    let rounded = (x / unit + part).round_ties_even() * unit;
    match rounded.abs() > format.largest {
        true if format.saturates => format.largest.copysign(x),
        true => f64::INFINITY.copysign(x),
        false => rounded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_to_their_neighbours() {
        use DType::{BF16, F8E4M3, F8E5M2, F16, F32};
        for (dtype, x, want) in [
            (F32, 0.1, 0.1),
            (BF16, 1.0 + 2f64.powi(-8), 1.0),
            (BF16, 1.0 + 3.0 * 2f64.powi(-8), 1.0 + 2f64.powi(-6)),
            (BF16, 3.4e38, f64::INFINITY),
            (F16, 65519.0, 65504.0),
            (F16, -65520.0, f64::NEG_INFINITY),
            (F16, 2f64.powi(-25), 0.0),
            (F16, 1.01 * 2f64.powi(-25), 2f64.powi(-24)),
            (F8E4M3, 17.0, 16.0),
            (F8E4M3, 19.0, 20.0),
            (F8E4M3, -1e9, -448.0),
            (F8E5M2, f64::INFINITY, 57344.0),
            (F8E5M2, 5.0, 5.0),
            (F8E5M2, 4.5, 4.0),
            (F8E4M3, 2f64.powi(-10), 0.0),
        ] {
            assert_eq!(Rounding::Nearest.round(dtype, x, 0), want, "{dtype:?} {x}");
        }
        assert!(Rounding::Nearest.round(F16, f64::NAN, 0).is_nan());
        let x = 1.0 + 2f64.powi(-9);
        let rounded: Vec<f64> = (0..1000).map(|index| Rounding::Random([1, 2]).round(BF16, x, index)).collect();
        let up = rounded.iter().filter(|&&y| y == 1.0 + 2f64.powi(-7)).count();
        assert!((200..300).contains(&up) && rounded.iter().all(|&y| y == 1.0 || y > x), "a quarter goes up: {up}");
        assert_eq!(Rounding::None.round(BF16, x, 0), x);
    }
}
