//! Seeds of random cases, as the environment asks for them.

use crate::sample::sampled;
use std::ops::Range;

/// Seeds from `MESHWRIGHT_FIRST`, and as many as `MESHWRIGHT_CASES` says.
pub(crate) fn cases(sample: u64, whole: u64) -> Range<u64> {
    let first = number("MESHWRIGHT_FIRST").unwrap_or(0);
    first..first + number("MESHWRIGHT_CASES").unwrap_or(sampled(sample, whole))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}
