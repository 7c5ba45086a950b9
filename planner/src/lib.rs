//! Sharding planner: which mesh axes shard which dims, and which collectives follow.
//!
//! The passes of [`PASSES`] run in order over a differentiated model at level 1 and return a model at level 1. After
//! the last pass every sharding is closed. Every statement obeys its op's rule, and each reshard is a sequence of
//! collectives.

mod assign;
mod choose;
mod heads;
mod pass;
mod passes;
mod pending;
mod ports;
mod recover;
pub mod reshard;
mod sections;
mod spread;
mod sums;

pub use heads::check_heads;
pub use pass::{Observer, PASSES, Pass, PlanError, finish, plan};
pub use passes::build_mesh::mesh;
pub use passes::collectives::{marked, reshard_paths};
pub use passes::shard;
