//! Executes programs. Each device has a main thread with its own arena, kernels and communicator endpoint, and, if cores
//! are free, a second thread: its lane, which runs the async stream.
//!
//! At load, every instruction of every instruction stream is translated once for its rank (`row`, `body`, `run`). Each
//! tensor then has a fixed offset in the arena (`places`), and the translation is stored in a `sheet`. A step walks the
//! sheet: `worker` executes the instruction stream's actions, `play` the steps of bodies, `lane` the started ones. A step
//! allocates nothing. [`Machine`] owns the threads.

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
