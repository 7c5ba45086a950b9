//! What a computation takes on a cluster: seconds of an op, a section and a collective. Decides nothing.

mod cluster;
mod flops;
mod machine;
mod price;
mod profile;
mod stack;
mod wire;

pub use cluster::{CPU, Cluster, Device, Link};
pub use flops::model_flops;
pub use machine::{AttentionShape, Format, Group, Machine, Recipe, Talk};
pub use price::{local_type, seconds_of, seconds_of_change, seconds_of_section, seconds_of_stmt};
pub use profile::{FUSED, MODULES, Profile, SAVED, Seconds, profile};
pub use stack::{Constant, Facts, Stack};
pub use wire::{Traffic, seconds_of_message, seconds_of_sum};
