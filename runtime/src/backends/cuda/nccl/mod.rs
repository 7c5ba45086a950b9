//! NCCL: the collectives of GPUs that are in several processes, each with one of them.
//!
//! The library is loaded at first use. The data of ranks goes through NCCL alone; what processes tell each other besides, as the names of
//! communicators, goes through their wire.

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
