//! Why the statements of a pass cannot be added to a block.

use std::fmt;

/// Error: a statement that a pass adds does not hold in the block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildError {
    /// An op does not accept its operands; the reason.
    Op(String),
    /// A value has a name that training gives.
    ReservedName(String),
    /// A parameter has no gradient.
    NoGradient(String),
    /// Parts of a matrix that are not joined along their last dim.
    PartsDiffer,
    /// A reshard, which has no gradient.
    Reshard,
    /// A product that takes no scales.
    NoScales,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Op(why) => f.write_str(why),
            BuildError::ReservedName(name) => {
                write!(f, "`%{name}` is a reserved name of training; rename the value")
            }
            BuildError::NoGradient(param) => write!(f, "`%{param}` has no gradient"),
            BuildError::PartsDiffer => f.write_str("parts of a matrix differ in more than their last dim"),
            BuildError::Reshard => f.write_str("reshards are inserted after differentiation, not before"),
            BuildError::NoScales => f.write_str("a product takes scales"),
        }
    }
}

impl std::error::Error for BuildError {}

impl From<String> for BuildError {
    fn from(why: String) -> BuildError {
        BuildError::Op(why)
    }
}
