//! Faults of flags.

use std::fmt;

/// A fault of flags, with a sentence about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlagError {
    /// The text is none of a shell, or has no flags.
    Text(String),
    /// The framework has no such flag.
    Unknown(String),
    /// A value is missing, or is one that the framework refuses.
    Value(String),
    /// Flags exclude each other, or one needs another.
    Combination(String),
}

impl fmt::Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (FlagError::Text(text) | FlagError::Unknown(text) | FlagError::Value(text) | FlagError::Combination(text)) =
            self;
        f.write_str(text)
    }
}

impl std::error::Error for FlagError {}
