//! Runs programs: for each device a thread with its own arena, kernels and end of the communicator, and where cores are
//! free another one, its lane, for what goes on beside the row.
//!
//! At load, every instruction of every row is translated once for the rank that runs it (`row`, `body`, `run`): each
//! tensor that it touches has then its fixed place in the arena (`places`), and all of it stands in a `sheet`. A step
//! walks the sheet: `worker` does the row's actions, `play` the steps of bodies, `lane` what was started. It allocates
//! nothing. [`Machine`] holds the threads.

mod body;
mod decode;
mod error;
mod lane;
mod machine;
mod mailbox;
mod places;
mod play;
mod rank;
mod row;
mod run;
mod sheet;
mod tape;
#[cfg(test)]
mod tests;
mod worker;

pub use error::Error;
pub use machine::{Input, Inputs, Machine, Options, StepInput, StepOutput};
pub use rank::Kept;
