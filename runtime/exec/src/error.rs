//! Errors of loading and running a program.

use comm::RankFailure;

/// Error of the executor.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The program cannot be loaded: it is broken, or the backend lacks what it needs.
    #[error("the program does not load: {0}")]
    Load(String),
    /// The system gives no memory or no thread for a rank.
    #[error("{0}")]
    Resources(String),
    /// The caller's input does not fit the model; the executor is unchanged.
    #[error("{0}")]
    Input(String),
    /// A rank failed in this step or an earlier one; the executor cannot continue.
    #[error(transparent)]
    RankFailure(#[from] RankFailure),
}
