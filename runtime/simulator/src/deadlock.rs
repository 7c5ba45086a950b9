//! Report of a deadlock: a program whose ranks wait for each other.

use std::fmt;

/// The blocked ranks when no rank can continue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// The ranks that are not at their ends.
    pub waiting: Vec<BlockedRank>,
}

/// A blocked rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockedRank {
    /// The pipeline rank.
    pub stage: u32,
    /// Its instruction: `wait recv %y.1:0`.
    pub at: String,
    /// The event that has not happened: `stage 1 to send it`.
    pub missing: String,
}

impl std::error::Error for Deadlock {}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no rank can go on")?;
        let channel = |w: &BlockedRank| format!("stage {} is at `{}` and waits for {}", w.stage, w.at, w.missing);
        self.waiting.iter().try_for_each(|waiting| write!(f, "\n{}", channel(waiting)))
    }
}
