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

impl From<String> for FlagError {
    /// The fault of a value.
    fn from(text: String) -> FlagError {
        FlagError::Value(text)
    }
}

impl From<&str> for FlagError {
    fn from(text: &str) -> FlagError {
        text.to_string().into()
    }
}

impl fmt::Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (FlagError::Text(text) | FlagError::Unknown(text) | FlagError::Value(text) | FlagError::Combination(text)) =
            self;
        f.write_str(text)
    }
}

impl std::error::Error for FlagError {}
