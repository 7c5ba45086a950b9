//! Cost model: time of an op, a section and a collective on a cluster. This crate makes no decisions.

mod attention;
mod block_options;
mod cluster;
mod collective_time;
mod flops;
mod interpolation;
mod knapsack;
mod link_traffic;
mod matmul;
mod op_cost;
mod platform;
mod presets;
mod profile;
mod quantities;
mod routing;
mod stack;
mod stack_file;
mod supports;

pub use attention::AttentionShape;
pub use block_options::{BlockOptions, Spread};
pub use cluster::{Attention, CPU, Cluster, Device, Host, Kernel, Link, Matmul, Tile};
pub use collective_time::{CollectiveKind, Group};
pub use flops::model_flops;
pub use interpolation::{Table, TablePoint};
pub use link_traffic::{Pattern, Traffic, pieces, seconds_of_message, seconds_of_sum};
pub use op_cost::{local_type, seconds_of, seconds_of_change, seconds_of_section, seconds_of_stmt};
pub use platform::{Format, Platform, Recipe};
pub use presets::{CLUSTERS, Preset, PresetError, STACKS};
pub use profile::{
    ExecutedFlops, Frontier, Kind, Profile, RecomputeChoice, Recomputed, SAVED, Seconds, frontier, profile, recomputed,
};
pub use quantities::{Interval, Passes, RecomputeCost, SplitByExperts};
pub use routing::Routing;
pub use stack::{Constant, Cut, Fitted, Stack, StackTraits};
pub use stack_file::StackFile;
pub use supports::Supports;
