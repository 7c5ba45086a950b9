//! NCCL: the collectives of GPUs that are in several processes, each with one of them.
//!
//! The library is loaded at first use. The data of ranks goes through NCCL alone; all other messages between processes, such as
//! the names of communicators, go through their wire.
//!
//! An exchange becomes calls of an engine (`comm::engine`); blocks that no call takes directly go through staging memory.
//! The host gives all calls to streams and waits for no peer, except for row counts where only filled rows move. No call
//! blocks. A watch ends all communicators after the first failure, so that no stream waits for a failed rank. The deadlock
//! detector treats a GPU that is blocked in NCCL as a waiting thread, so deadlocks across processes are found.

mod communicator;
mod exchange;
mod joint;
mod library;
mod queue;
mod recordings;
mod rows;
mod transport;

pub use communicator::{Communicator, UniqueId};
pub use joint::Joint;
pub use library::{file_names, is_there, version};
pub use transport::NcclTransport;
