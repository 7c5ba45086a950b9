//! Faults that ranks are told to have, to test what finds them.

use std::time::Duration;

/// Faults of a run, each of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// A rank that takes so much longer for each step.
    pub slow: Option<(usize, Duration)>,
    /// A rank that gets stuck in this training step.
    pub stuck: Option<(usize, u64)>,
}
