//! The exit status of the process.

use crate::error::Error;
use compiler::error::Error as RequestError;

/// The status with which the process ends after an error.
pub(crate) fn of_error(error: &Error) -> u8 {
    match error {
        Error::Request(RequestError::Diagnostics { .. } | RequestError::Input { .. }) => 1,
        Error::Usage(_) => 2,
        Error::Request(RequestError::Fault { .. }) => 3,
        Error::Request(RequestError::NotFinished { .. } | RequestError::Cancelled) | Error::Failed { .. } => 5,
        // As a shell reports a process that the signal has ended.
        Error::Ended { signal, .. } => 128 + signal,
        Error::Hopeless { .. } => 6,
    }
}
