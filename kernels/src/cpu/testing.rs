//! Helpers shared by the tests of this crate.

use super::dropout::{normal, philox};

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

/// The same numbers in double precision.
pub(crate) fn doubles(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&v| f64::from(v)).collect()
}
