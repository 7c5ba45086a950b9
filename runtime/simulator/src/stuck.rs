//! Report of a deadlock: a program whose ranks wait for each other.

use std::fmt;

/// Who waits for whom when no rank can go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stuck {
    /// The ranks that are not at their ends.
    pub waiting: Vec<Waiting>,
}

/// Where a rank stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The pipeline rank.
    pub stage: u32,
    /// Its instruction: `wait recv %y.1:0`.
    pub at: String,
    /// What has not come: `stage 1 to send it`.
    pub missing: String,
}

impl std::error::Error for Stuck {}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no rank can go on")?;
        let line = |w: &Waiting| format!("stage {} stands at `{}` and waits for {}", w.stage, w.at, w.missing);
        self.waiting.iter().try_for_each(|waiting| write!(f, "\n{}", line(waiting)))
    }
}
