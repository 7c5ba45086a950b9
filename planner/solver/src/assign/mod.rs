//! The assignment problem: one choice per node, minimising the sum of node costs and pair costs, with the use of the
//! chosen ones within a limit at every time. This is the problem of the ASPLOS 2025 contest on intra-operator
//! parallelism: nodes are ops, choices shardings, pairs reshards, and use is memory.
//!
//! [`Assignment`] is a problem and [`Assignment::solve`] solves it. `net` is a reducible problem, and `presolve` removes irrelevant
//! parts. `construct` finds a first assignment, in which `domains` has the choices that are still open. `dual` computes lower
//! bounds and prices of use. From these, `oscillate` searches on both sides of the limit, and `improve` in large neighbourhoods.
//! `branch` searches exhaustively if the budget allows. `search` orders these steps.
//!
//! A construction under arc consistency finds a first answer. Soft arc consistency (cost shifting) with a Lagrange
//! multiplier on the limit gives a bound. Branch and bound prunes choices whose reduced cost exceeds the incumbent.

mod branch;
mod bucket;
mod clock;
mod construct;
mod decode;
mod domains;
mod dual;
mod forest;
mod improve;
mod incumbent;
mod net;
mod oscillate;
mod polish;
mod presolve;
mod problem;
mod random;
mod search;
mod shared;
mod slack;
mod solve;
#[cfg(test)]
mod tests;

pub use clock::Deadline;
pub use problem::{Assignment, Budget, Node, Solution};
