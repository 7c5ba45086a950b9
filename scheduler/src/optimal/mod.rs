//! The best order there is, as far as it can be found and proved: warm start, bounds, and engines that improve on both.
//!
//! Backwards: `Fused` runs each as a B, `Split` as I and W. `Auto` may choose for each: without `fb` that is `Split`,
//! since I and at once W take a B's place and the neighbour gets its gradient earlier; with `fb`, B in overlapped pairs
//! too.

mod engine;
mod instance;
pub mod periodic;

pub use engine::{Budget, Engine, Found, Incumbent, Task};
pub use instance::{Instance, Operation};

use crate::problem::Problem;
use crate::simulate::Timeline;
use ir::schedule::Schedule;

/// The best order found, and what is known of it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The order.
    pub schedule: Schedule,
    /// The order in time, by the simulator.
    pub timeline: Timeline,
    /// The objective's value.
    pub value: f64,
    /// No order has a smaller value.
    pub bound: f64,
    /// What made the order: the name of a rule or of an engine.
    pub engine: &'static str,
    /// Whether value and bound meet.
    pub optimal: bool,
    /// Whether the same problem gives the same answer on every machine and in every run.
    pub deterministic: bool,
}

/// No order holds the memory limits.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("rank {rank} may hold {limit}, but every order makes it hold {least} or more")]
pub struct Infeasible {
    /// A rank that cannot do with its limit.
    pub rank: usize,
    /// Its limit.
    pub limit: f64,
    /// The smallest limit of this rank that some order holds.
    pub least: f64,
}
