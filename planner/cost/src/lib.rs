//! Cost model: time of an op, a section and a collective on a cluster. This crate makes no decisions.

mod attention;
mod block_options;
mod cluster;
mod flops;
mod knapsack;
mod machine;
mod matmul;
mod presets;
mod price;
mod profile;
mod routing;
mod stack;
mod stack_file;
mod supports;
mod table;
mod talk;
mod wire;

pub use attention::AttentionShape;
pub use block_options::{BlockOptions, Spread};
pub use cluster::{Attention, CPU, Cluster, Device, Host, Kernel, Link, Matmul};
pub use flops::model_flops;
pub use machine::{Format, Machine, Recipe};
pub use presets::{CLUSTERS, Preset, PresetError, STACKS};
pub use price::{local_type, seconds_of, seconds_of_change, seconds_of_section, seconds_of_stmt};
pub use profile::{Again, Frontier, Kind, Profile, Recomputed, SAVED, Seconds, frontier, profile, recomputed};
pub use routing::Routing;
pub use stack::{Constant, Cut, Facts, Fitted, Stack};
pub use stack_file::StackFile;
pub use supports::Supports;
pub use table::Table;
pub use talk::{Group, Talk};
pub use wire::{Pattern, Traffic, pieces, seconds_of_message, seconds_of_sum};
