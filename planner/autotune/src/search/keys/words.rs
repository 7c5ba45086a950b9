//! Phrases of the meanings of keys.

use estimator::Predicted;
use support::units::{share, time};

/// Seconds that a step spends on something, with their share of it: ` (exposed communication 0.2 s, 3 % of the step)`; empty if there
/// are none.
pub(super) fn spent(seconds: f64, on: &str, predicted: &Predicted) -> String {
    let part = share(seconds / predicted.step_time_s);
    if seconds > 0.0 { format!(" ({on} {}, {part} of the step)", time(seconds)) } else { String::new() }
}

/// `1 sequence`, `3 micro-batches`.
pub(super) fn number_of(count: u64, what: &str) -> String {
    let end = if what.ends_with("ch") { "es" } else { "s" };
    format!("{count} {what}{}", if count == 1 { "" } else { end })
}
