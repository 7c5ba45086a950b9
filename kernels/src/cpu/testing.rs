//! Helpers shared by the tests of this crate.

#[path = "../../../tests/support/sample.rs"]
pub(crate) mod sample;

use super::dropout::{normal, philox};
use super::par::Par;
use crate::cpu::narrow::{Floats, Narrow, round, widen};

/// `n` standard normal numbers.
pub(crate) fn normals(n: usize, seed: u32) -> Vec<f32> {
    (0..n as u64).map(|i| normal([seed, 17], i)).collect()
}

/// `n` integers from `low` to `high`, the latter excluded.
pub(crate) fn integers(n: usize, seed: u32, low: i32, high: i32) -> Vec<i32> {
    (0..n as u64).map(|i| low + (philox([seed, 23], i)[0] % (high - low) as u32) as i32).collect()
}

/// Asserts that each element is within `tolerance` of the expected one, relative to the larger of that and 1.
#[track_caller]
pub(crate) fn assert_close(got: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let got = f64::from(got);
        let close = (got - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(close || got == expected, "element {i}: got {got}, expected {expected}");
    }
}

/// The error function by its series without cancellation, Abramowitz and Stegun 7.1.6. Beyond 6 it is 1 to the last bit.
pub(crate) fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > 0.25 * f64::EPSILON * sum.abs() {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// The same numbers in double precision.
pub(crate) fn doubles(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&v| f64::from(v)).collect()
}

/// Numbers and how they are stored: in a narrow format, or as f32.
pub(crate) struct Stored {
    pub(crate) numbers: Vec<f32>,
    narrow: Option<(Narrow, Vec<u8>)>,
}

impl Stored {
    /// The nearest numbers that the format has.
    pub(crate) fn new(format: Option<Narrow>, numbers: &[f32]) -> Stored {
        let mut numbers = numbers.to_vec();
        let narrow = format.map(|format| {
            let mut bytes = vec![0; numbers.len() * format.bytes()];
            round(format, &numbers, &mut bytes, Par(1));
            widen(format, &bytes, &mut numbers, Par(1));
            (format, bytes)
        });
        Stored { numbers, narrow }
    }

    pub(crate) fn floats(&self) -> Floats<'_> {
        match &self.narrow {
            None => Floats::Wide(&self.numbers),
            Some((format, bytes)) => Floats::Narrow(*format, bytes),
        }
    }

    /// All formats of two operands of which one is narrow.
    pub(crate) fn mixes() -> Vec<[Option<Narrow>; 2]> {
        let formats = [None].into_iter().chain(Narrow::ALL.map(Some));
        let pairs = formats.clone().flat_map(|a| formats.clone().map(move |b| [a, b]));
        pairs.filter(|pair| *pair != [None; 2]).collect()
    }
}
