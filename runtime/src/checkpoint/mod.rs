//! Checkpoints: all that a run needs to go on, in a folder of logical tensors.
//!
//! ```text
//! out/step-00000120/
//!     manifest.json           position of the run, fixed options, every tensor with its shards, every file with its checksum
//!     manifest.crc32          the checksum of the manifest
//!     data-0000.safetensors   shards, one file for each rank that writes
//! ```
//!
//! Nothing in it goes by rank or mesh: a shard says where it lies in its tensor, so that a checkpoint of one layout loads
//! under any other. Random numbers are pure functions of a seed and a logical index, so that the seed, the step and the
//! count of consumed samples are all the state besides tensors.
//!
//! [`save`] deals the distinct shards out to the ranks that hold them and lets all write at once. [`Checkpoint::load`] lets
//! every rank read the shards that meet its own part.

mod data;
mod deal;
mod error;
mod folder;
mod manifest;
mod read;
mod shard;
#[cfg(test)]
mod testing;
mod write;

pub use error::{Difference, Error};
pub use folder::{clean, list, prune, run_of};
pub use manifest::{DataFile, MANIFEST, Manifest, Parameter, Position, SCHEMA, Stored, StoredShard};
pub use read::Checkpoint;
pub use shard::Shard;
pub use write::{Save, save};
