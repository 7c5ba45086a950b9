//! Runs programs: one thread per device, each with its own memory, kernels and end of the communicator.
//!
//! At load, every instruction of every row is translated once for the rank that runs it: `body` makes kernels and layout
//! changes ready for the rank's shapes, `row` and `run` look up registers, peers and kept tensors. What is left for the
//! step is a loop over actions and the steps of bodies in `worker`. [`Machine`] holds the threads.

mod body;
mod error;
mod machine;
mod row;
mod run;
#[cfg(test)]
mod tests;
mod worker;

pub use error::Error;
pub use machine::{Input, Inputs, Machine, Options, StepInput, StepOutput};
