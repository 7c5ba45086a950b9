//! Optimisation solvers, independent of tensors: mixed-integer linear programs, and assignments with pairwise costs.
//!
//! The crate is part of the bottom layer of Meshwright: it imports no other crate of the workspace. The planner chooses shardings
//! by it, and the scheduler orders.
//!
//! - [`Program`]: a minimisation under linear rows. microlp solves it, or HiGHS with the feature `highs`.
//! - [`assign::Assignment`]: a choice for each node, costs by node and by pair, and a limit on use at every time.
//!
//! Answers are checked against their rows, and a bound holds whenever the search ends.
//!
//! ```
//! use meshwright_solver::{Limits, Program, Relation, Status};
//!
//! // Of three things of weights 3, 4 and 5 and values 4, 5 and 6, the most valuable that weigh at most 8.
//! let mut program = Program::new();
//! let [a, b, c] = [4.0, 5.0, 6.0].map(|value| program.binary(-value));
//! program.constrain([(a, 3.0), (b, 4.0), (c, 5.0)], Relation::Le, 8.0);
//! let answer = program.solve(&Limits::default(), None);
//! assert_eq!((answer.status, answer.values), (Status::Optimal, vec![1.0, 0.0, 1.0]));
//! ```

pub mod assign;
#[cfg(not(feature = "highs"))]
mod microlp_engine;
mod program;

#[cfg(feature = "highs")]
mod highs_engine;

pub use program::{Answer, Limits, Program, Relation, Status, Var};
