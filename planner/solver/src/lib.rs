//! Optimisation solvers, independent of tensors: mixed-integer linear programs, and assignments with pairwise costs.

pub mod assign;
#[cfg(not(feature = "highs"))]
mod microlp_engine;
mod program;

#[cfg(feature = "highs")]
mod highs_engine;

pub use program::{Answer, Limits, Program, Relation, Status, Var};
