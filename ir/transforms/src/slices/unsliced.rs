//! Why a block cannot be sliced along the sequence.

use ir::rule::RuleError;
use std::fmt;

/// The reason that a block cannot be sliced.
pub(super) enum Unsliced {
    /// A value that has the sequence in two dims.
    TwoDims(String),
    /// A statement, as it is printed, and its reason.
    Statement(String, UnslicedStatement),
    /// A passed value that is a sum over the sequence.
    Sum(String),
    /// A result that accumulates, but is no sum over the sequence.
    NoSum(String),
    /// An op that does not accept a slice; the reason.
    Op(String),
    /// An op that gives something else on a slice.
    Other(&'static str),
    /// An op that goes by places in a sequence, which is not dim 1.
    Placed(&'static str),
}

/// The reason that a statement cannot be sliced.
pub(super) enum UnslicedStatement {
    Reshard,
    Rule(RuleError),
    /// Its operand has the sequence and another factor in one dim.
    OperandMerges,
    TwoFactors,
    Whole,
    /// Its result has the sequence and another factor in one dim.
    ResultMerges,
    /// A result without the sequence is no sum over it.
    Determined,
    PartOfSum,
}

impl fmt::Display for Unsliced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsliced::TwoDims(name) => write!(f, "`%{name}` has the sequence twice"),
            Unsliced::Statement(stmt, why) => write!(f, "`{stmt}` {why}"),
            Unsliced::Sum(name) => write!(f, "`%{name}` is a sum over the sequence"),
            Unsliced::NoSum(name) => write!(f, "`%{name}` is no sum over the sequence"),
            Unsliced::Op(why) => f.write_str(why),
            Unsliced::Other(op) => write!(f, "`{op}` gives something else on a slice"),
            Unsliced::Placed(op) => write!(f, "`{op}` goes by places in a sequence, which must be dim 1"),
        }
    }
}

impl fmt::Display for UnslicedStatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnslicedStatement::Reshard => "changes a sharding, which is decided later",
            UnslicedStatement::Rule(why) => return why.fmt(f),
            UnslicedStatement::OperandMerges => "merges the sequence with another dim, or splits it",
            UnslicedStatement::TwoFactors => "uses two of its factors for the sequence",
            UnslicedStatement::Whole => "needs the entire sequence",
            UnslicedStatement::ResultMerges => "merges the sequence with another dim",
            UnslicedStatement::Determined => "has a result that only the entire sequence determines",
            UnslicedStatement::PartOfSum => "uses a sum over the sequence; a slice has only a part of the sum",
        })
    }
}
