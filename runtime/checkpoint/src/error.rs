//! Errors of writing and reading checkpoints.

use std::fmt;
use std::path::PathBuf;

/// Error while a checkpoint is written or read. A message has the problem and the place; the caller adds the fix.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing to resume from.
    #[error("there is no checkpoint at {}", path.display())]
    Missing {
        /// A checkpoint's folder, or that of a run.
        path: PathBuf,
    },
    /// A file is not as it was written.
    #[error("the checkpoint {} is damaged: {file} {why}", checkpoint.display())]
    Damaged {
        /// The checkpoint's folder.
        checkpoint: PathBuf,
        /// The file in it.
        file: String,
        /// The defect of the file.
        why: String,
    },
    /// Another version wrote it.
    #[error("the checkpoint {} has the format `{found}`, but this version reads `{known}`", checkpoint.display())]
    Version {
        /// The checkpoint's folder.
        checkpoint: PathBuf,
        /// The format that its manifest names.
        found: String,
        /// The format that this version knows.
        known: &'static str,
    },
    /// It is of another run.
    #[error("the checkpoint {} is of another run: {}", checkpoint.display(), listed(differences))]
    Mismatch {
        /// The checkpoint's folder.
        checkpoint: PathBuf,
        /// All that differs, at least one.
        differences: Vec<Difference>,
    },
    /// The system refuses to write.
    #[error("the checkpoint {} cannot be written: {why}", checkpoint.display())]
    Unwritable {
        /// The checkpoint's folder, as it would have been called.
        checkpoint: PathBuf,
        /// The file or folder, and the message of the operating system.
        why: String,
    },
    /// The system refuses to remove older checkpoints.
    #[error("the checkpoint {} is saved, but older ones cannot be removed: {why}", checkpoint.display())]
    Unremoved {
        /// The checkpoint's folder.
        checkpoint: PathBuf,
        /// The message of the operating system.
        why: String,
    },
    /// A rank failed.
    #[error(transparent)]
    Executor(#[from] exec::Error),
}

/// Option on which a run and a checkpoint differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Its name.
    pub field: String,
    /// Its value in the checkpoint.
    pub saved: String,
    /// Its value in the run.
    pub now: String,
}

/// Number of differences that a message names; the rest are counted.
const TOLD: usize = 4;

fn listed(differences: &[Difference]) -> String {
    let told: Vec<String> = differences.iter().take(TOLD).map(Difference::to_string).collect();
    match differences.len().saturating_sub(TOLD) {
        0 => told.join("; "),
        more => format!("{}; and {more} more", told.join("; ")),
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}, in the checkpoint {}", self.field, self.now, self.saved)
    }
}
