//! Simulator: steps through a compiled program with the cost model and advances clocks, without computing.
//!
//! The crate is above `ir`, `planner/cost` and `runtime/trace`; it knows no runtime. [`step`] returns the [`Trace`] of
//! a step, of the same type as that of a measured one.
//!
//! Ranks that differ only below pp execute the same instruction stream on equal bounds. One simulated rank therefore
//! represents a whole pipeline rank, and a cluster may have any size. The timing rules are:
//!
//! - The instruction stream computes one kernel at a time.
//! - Collectives run asynchronously, one after the other on each communicator: a set of axes and the thread that starts
//!   them.
//! - Started bodies run one after the other on the async stream, with communicators of their own. The instruction stream
//!   pauses while a started body computes.
//! - A message moves when both ends have started, and the sender's outgoing and the receiver's incoming link are free.
//! - Copies to host memory run one after the other, and so do those back, at the rank's share of its node's link.
//! - A sum over stages moves when all members have started.
//! - A wait ends when its request completes.
//!
//! ```
//! use cost::PROGRAM;
//! use ir::text::parse;
//!
//! // One stage; a step feeds `%x` and runs one block.
//! let text = "
//! dims [b=8, h=16]
//! model @m(%x: input f32[b, h]) {
//!   %y = call @a(%x)
//! }
//! block @a(%x: f32[b, h]) -> f32[b, h] {
//! F:
//!   %y: f32[b, h] = silu(%x)
//!   return %y
//! }
//! program @p microbatches=1 {
//!   body @a.F(%x: f32[b, h]) -> (%y) {
//!     %y: f32[b, h] = silu(%x)
//!   }
//!   class 0..1 {
//!     %x:0 = feed %x microbatch=0
//!     %y:0 = run @a.F call=0 instance=0 microbatch=0 (%x:0)
//!   }
//! }";
//! let file = parse(text)?;
//! let trace = meshwright_simulator::step(&file.model, file.program.as_ref().unwrap(), &PROGRAM)?;
//! assert!(trace.seconds > 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod costs;
mod deadlock;
mod rendezvous;
mod simulation;
#[cfg(test)]
mod tests;

pub use deadlock::{BlockedRank, Deadlock};

use cost::Platform;
use ir::graph::Model;
use ir::program::Program;
use trace::Trace;

/// Predicted trace of a step of the program on a platform, with one rank per pipeline rank.
///
/// # Errors
/// The ranks wait for each other, or for what no rank does.
pub fn step(model: &Model, program: &Program, platform: &Platform<'_>) -> Result<Trace, Deadlock> {
    let mut simulation = simulation::Simulation::new(model, program, platform);
    simulation.run()?;
    simulation.trace.sort();
    Ok(simulation.trace)
}
