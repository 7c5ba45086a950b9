//! Internal errors of the passes.

use crate::PlanError;
use crate::reshard::NoPath;

/// Internal error of a pass: a bug in an op or in the pass.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// An op's rule does not fit its tensors.
    #[error("rule of `{op}`: {why}")]
    Rule {
        /// Name of the op.
        op: &'static str,
        /// Mismatch of the rule.
        why: String,
    },
    /// A statement without a rule is to be decided by its rule.
    #[error("a collective has no rule")]
    NoRule,
    /// No assignment of axes fits the tensors of an op.
    #[error("`{op}` has no legal sharding")]
    NoSharding {
        /// Name of the op.
        op: &'static str,
    },
    /// A composite op has no decomposition.
    #[error("has no expansion")]
    NoExpansion,
    /// An op's decomposition, join or result type, or the rule of a boundary, fails.
    #[error("{0}")]
    Op(String),
    /// No sequence of collectives leads from one sharding to another.
    #[error(transparent)]
    NoPath(#[from] NoPath),
    /// A statement reads a value before any statement produces it.
    #[error("reads what nothing makes")]
    Undefined,
    /// The op of a ring cannot run in rounds.
    #[error("a ring has an op in rounds")]
    NoRounds,
    /// A ring has no round.
    #[error("a ring without rounds")]
    EmptyRing,
    /// A shift between two rounds returns too few values.
    #[error("a shift lacks a result")]
    ShortShift,
    /// A value of a join has the rank of none of its results.
    #[error("a join has the dims of its results")]
    JoinedRank,
}

impl Fault {
    /// Error of the pass in which the fault occurred.
    pub(crate) fn in_pass(self, pass: &'static str) -> PlanError {
        PlanError::Fault { pass, why: self.to_string() }
    }
}
