//! A backend that computes nothing: it steps through an emitted program with the cost model and moves clocks.
//!
//! Ranks that differ only below pp run the same row on equal bounds, so that one stands for all of a pipeline rank, and a
//! cluster may be of any size. The row computes one kernel at a time. Layout changes go on by themselves, one after the
//! other on each communicator: a set of axes and who starts them. Started runs go one after the other beside the row, on
//! communicators of their own; the row makes room for what they compute. A message moves when both ends have started and the sender's way out and the
//! receiver's way in are free; a sum over stages when all members have started. A wait lasts until what it waits for is
//! over.

mod clock;
mod meet;
mod price;
mod stuck;
#[cfg(test)]
mod tests;

pub use stuck::{Stuck, Waiting};

use crate::trace::Trace;
use cost::Cluster;
use ir::graph::Model;
use ir::program::Program;

/// What a step of the program would take on a cluster, as a trace of one rank per pipeline rank.
///
/// # Errors
/// The ranks wait for each other, or for what no rank does.
pub fn step(model: &Model, program: &Program, cluster: &Cluster) -> Result<Trace, Stuck> {
    let mut clocks = clock::Clocks::new(model, program, cluster);
    clocks.run()?;
    clocks.trace.sort();
    Ok(clocks.trace)
}
