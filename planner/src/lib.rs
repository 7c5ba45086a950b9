//! WHERE: which axes shard which dims, and the collectives that follow from it.
//!
//! Level 1 in, level 1 out: the passes of [`PASSES`] run in order over a differentiated model. After the last one every
//! sharding is closed, every statement obeys its op's rule, and each change of layout is a collective.

mod assign;
mod choose;
mod heads;
mod pass;
mod passes;
mod pending;
mod ports;
mod recover;
pub mod reshard;
pub mod search;
mod sections;
pub mod shard;
mod spread;
mod sums;

pub use heads::check_heads;
pub use pass::{Observer, PASSES, Pass, PlanError, finish, plan, plan_watched};
pub use passes::build_mesh::mesh;
pub use passes::collectives::{marked, ways};
