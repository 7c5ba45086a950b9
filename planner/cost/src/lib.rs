//! Cost model: time of an op, a section and a collective on a cluster, bytes that a collective sends, and FLOPs of a model.
//!
//! The crate makes no decisions. It is above `ir` and `ir/transforms`; planner, scheduler, code generation, simulator and estimator
//! use it.
//!
//! - [`Cluster`]: the hardware, a file of figures with sources. [`Stack`]: the software on it. [`Platform`] joins the two.
//! - [`Platform::stmt`], [`Platform::group`] and [`Platform::change`]: times of a program's statements and collectives.
//! - [`profile()`]: the costs of a planned block section by section, for `estimate` and `plan`.
//! - [`model_flops`]: the FLOPs that a model needs.
//!
//! A [`Platform`] is the only source of seconds: for reshards, `--shard auto`, the order of statements, the simulator and
//! estimates. Products have tiles and waves, collectives have sizes and groups. `compile` and `train` use the cluster `cpu`
//! unless a request names one, so that programs do not depend on the machine.
//!
//! A stack has eight constants that are fitted to runs, each within its interval. Its traits (`traits`) describe what the
//! software does; they are chosen by their sources and never fitted. An interval follows from the errors on the fitted
//! runs. Far from these runs the interval also includes the variance between publishers (`residual`).
//!
//! ```
//! use ir::models::{Batch, preset};
//! use ir::types::DType;
//! use meshwright_cost::{Cluster, Stack, model_flops};
//!
//! let (cluster, stack) = (Cluster::find("h100")?, Stack::find("megatron-core-2025")?);
//! assert!(stack.supports.schedule("1f1b"));
//!
//! let config = &preset("tiny-llama").unwrap().config;
//! let flops = model_flops(&config.build(&Batch { batch: 2, seq: 16, dtype: DType::BF16 })?);
//! assert!(flops / cluster.device.flops(DType::BF16) < 1e-3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attention;
mod base_file;
mod block_options;
mod chance;
mod cluster;
mod collective_time;
mod enum_set;
mod flops;
mod group_shape;
mod interpolation;
mod kernel;
mod knapsack;
mod local_types;
mod matmul;
mod memory_traffic;
mod pattern;
mod pieces;
mod platform;
mod preset_error;
mod presets;
mod profile;
mod quantities;
mod regime;
mod residual;
mod routing;
mod rules;
mod schedule_name;
mod stack;
mod stack_expression;
mod stack_file;
mod statement;
mod supports;
mod traits;
mod whole;

pub use attention::AttentionShape;
pub use base_file::BaseFile;
pub use block_options::{BlockOptions, Spread};
pub use chance::Percentiles;
pub use cluster::{Attention, CPU, Cluster, Device, Host, Link, Matmul, Tile};
pub use collective_time::{CollectiveKind, Group};
pub use enum_set::{EnumSet, Named};
pub use flops::model_flops;
pub use group_shape::GroupShape;
pub use interpolation::{Table, TablePoint};
pub use kernel::Kernel;
pub use local_types::local_type;
pub use memory_traffic::{MemoryTraffic, is_memory_bound, memory_traffic};
pub use pattern::Pattern;
pub use pieces::pieces;
pub use platform::{Format, PROGRAM, Platform, Recipe};
pub use preset_error::PresetError;
pub use presets::{CLUSTERS, Preset, STACKS};
pub use profile::{
    ExecutedFlops, Frontier, Kind, Profile, Reach, RecomputeChoice, Recomputed, Seconds, frontier, profile, recomputed,
};
pub use quantities::{Elements, Interval, Passes, RecomputeCost, SplitByExperts};
pub use regime::{LayerKind, Regime, RegimeFactors, Regimes};
pub use residual::{Errors, Job, Measured, MemoryBudget, Residual};
pub use routing::Routing;
pub use rules::{Rule, RuleName, RuleNumbers};
pub use schedule_name::ScheduleName;
pub use stack::{Constant, Fitted, Stack};
pub use stack_expression::StackExpression;
pub use statement::Scope;
pub use supports::{Degree, Supports, Vendor};
pub use traits::{
    Accumulate, Capacity, Cut, Dispatch, Experts, Formats, FusedKernel, GatherUpdated, Graphs, Hidden, Kernels, Launch,
    Master, Memory, Network, SavedBytes, StackTraits, Zero,
};
