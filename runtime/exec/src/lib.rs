//! Executes programs. Each device has a main thread with its own arena, kernels and communicator endpoint, and, if cores
//! are free, a second thread: its async worker, which runs started bodies and completes exchanges.
//!
//! At load, every instruction of every instruction stream is translated once for its rank (`row`, `body`, `run`). Each
//! tensor then has a fixed offset in the arena (`places`), and the translation is a `rank_program`. A step walks the rank
//! program: `worker` executes its actions, a `cursor` the steps of a body, `background` the started bodies. A step
//! allocates nothing. [`Executor`] owns the threads; a [`Platform`] names the backend and the communicator of its ranks.

mod background;
mod body;
mod clocks;
mod codes;
mod cursor;
mod decode;
mod error;
mod executor;
mod feeds;
mod frees;
mod load;
mod load_error;
mod mailbox;
mod merge;
mod offload;
mod places;
mod platform;
mod poison;
mod progress;
mod rank;
mod rank_program;
mod recorder;
mod row;
mod run;
pub mod state;
mod status;
mod stuck_text;
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
mod window;
mod worker;

pub use error::Error;
pub use executor::{Executor, Input, Inputs, Options, StepInput, StepOutput};
pub use load_error::LoadError;
pub use platform::{Platform, Threads};
pub use rank::RankState;
