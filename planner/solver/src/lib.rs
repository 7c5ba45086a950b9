//! Abstract optimisation: programs of 0/1, integer and real variables, and assignments with pairwise costs. Knows no tensor.

pub mod assign;
#[cfg(not(feature = "highs"))]
mod microlp_engine;
mod program;

#[cfg(feature = "highs")]
mod highs_engine;

pub use program::{Answer, Limits, Program, Relation, Status, Var};
