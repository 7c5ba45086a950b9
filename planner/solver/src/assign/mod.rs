//! The assignment problem: one choice for every node, at the least sum of costs by node and by pair of nodes, so that at
//! every time what the chosen ones use stays within a limit. This is the problem of the ASPLOS 2025 contest on
//! intra-operator parallelism, where nodes are ops, choices shardings, pairs layout changes, and use is memory.
//!
//! [`Assignment`] states a problem and [`Assignment::solve`] answers it. `net` is a problem that can shrink; `presolve`
//! takes from it what cannot matter; `dual` bounds the rest from below; `branch` searches it, to the end if the budget
//! allows; `improve` betters an assignment part by part; `search` says what comes when.

mod branch;
mod bucket;
mod clock;
mod decode;
mod dual;
mod improve;
mod net;
mod polish;
mod presolve;
mod problem;
mod random;
mod search;
mod shared;
mod solve;

pub use clock::Deadline;
pub use problem::{Assignment, Budget, Node, Solution};
