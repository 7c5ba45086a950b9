//! How much of a test runs: a sample, or with `MESHWRIGHT_WHOLE=1` all of it.

/// True if tests run whole, as they do each night.
pub(crate) fn is_whole() -> bool {
    std::env::var("MESHWRIGHT_WHOLE").is_ok_and(|value| value == "1")
}

/// The value for a sample, or the one for all of a test.
pub(crate) fn sampled<T>(sample: T, whole: T) -> T {
    if is_whole() { whole } else { sample }
}
