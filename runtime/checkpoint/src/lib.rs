//! Checkpoints: the complete state from which a run resumes, in a folder of logical tensors.
//!
//! ```text
//! out/step-00000120/
//!     manifest.json           position of the run, fixed options, every tensor with its shards, every file with its checksum
//!     manifest.crc32          the checksum of the manifest
//!     data-0000.safetensors   shards, one file for each rank that writes
//! ```
//!
//! No entry depends on a rank or a mesh. A shard records its offset in its tensor, so a checkpoint of one configuration
//! loads under any other. Random numbers are pure functions of a seed and a logical index. The seed, the step and the
//! number of consumed samples are therefore all the state besides tensors.
//!
//! A [`Saver`] assigns the distinct shards to ranks that hold them, copies them, and writes the copies while the run goes on;
//! [`save`] waits. [`Checkpoint::load`] lets every rank read the shards that intersect its own part.

mod assign;
mod codes;
mod data;
mod error;
mod folder;
pub mod loss_scale;
mod manifest;
mod read;
mod replicas;
mod saver;
mod shard;
mod task;
#[cfg(test)]
mod testing;
mod together;
mod write;

pub use error::{Difference, Error};
pub use folder::{clean, list, prune, run_of};
pub use manifest::{DataFile, MANIFEST, Manifest, Origin, Parameter, Position, SCHEMA, Stored, StoredShard};
pub use read::{Checkpoint, TensorReader};
pub use replicas::{Divergence, Replicas};
pub use saver::{Before, Saver};
pub use shard::Shard;
pub use write::{Save, save};
