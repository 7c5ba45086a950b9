//! Faults of the files in an archive.

use std::fmt;

/// Why a file of an archive cannot be read, with a sentence about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The file contradicts its format.
    Damaged(String),
    /// The file is as its format wants it, and this version does not read it.
    Unsupported(String),
}

impl From<String> for Fault {
    fn from(why: String) -> Fault {
        Fault::Damaged(why)
    }
}

impl From<&str> for Fault {
    fn from(why: &str) -> Fault {
        Fault::Damaged(why.to_string())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Fault::Damaged(why) | Fault::Unsupported(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for Fault {}
