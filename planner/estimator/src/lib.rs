//! Predicted step time and memory of a configuration. No program is made, and no device is needed.
//!
//! The crate is above `planner/compiler`, of which it uses the passes on single blocks; `planner/autotune` searches with it.
//!
//! ```
//! use meshwright_estimator::{EstimateRequest, Estimator};
//!
//! let request = EstimateRequest {
//!     model: "llama3-8b".to_string(),
//!     gpus: Some(8),
//!     seq: 8192,
//!     global_batch: 64,
//!     parallel: "tp=2,zero=1".to_string(),
//!     ..EstimateRequest::default()
//! };
//! let report = Estimator::new().estimate(&request)?;
//! assert_eq!(report.parallel.dp, 4);
//! println!("{report}");
//! # Ok::<(), compiler::error::Error>(())
//! ```
//!
//! Data flow:
//! 1. A request names a model, a cluster, a stack and a configuration (`request`).
//! 2. `place` fits the configuration to the devices.
//! 3. `blocks` plans the model's blocks on the axes below pp and estimates their cost.
//! 4. `stages` partitions the model into stages; `pipeline` orders and simulates them.
//! 5. `replicas` adds the communication of data-parallel ranks analytically; `memory` and `update_memory` do so for memory.
//! 6. `step` combines these into a step and an [`EstimateReport`].
//!
//! A cost database (`cost_database`) keeps the results that configurations share, as queries on projections of them
//! (`projection`). An [`Estimator`] has one for each model, platform and number formats; an [`Evaluator`] works on one.
//!
//! A lower bound and a prediction are made of the same terms. Each shared result is computed from its key alone, so that no
//! option can be missing from a key. Two configurations with the same shape class whose reshards take the same paths share
//! a plan, which is resized (`shape_class`). Reshard paths follow the links of a platform, not its fitted constants, so
//! that fits share plans. On clusters whose devices share cores, a step takes at least the work of all devices over the
//! cores.

mod action_order;
mod any_pipeline;
mod auto_recompute;
mod blocks;
mod budget;
mod candidate;
mod cost_database;
mod critical_path;
mod error;
mod estimate_all;
mod estimator;
mod evaluator;
mod faster_stages;
mod headroom;
mod job_numbers;
mod layer_room;
mod least_bytes;
mod memory;
mod memory_fit;
mod model_plans;
mod model_work;
mod notes;
mod offload_choice;
mod open_shards;
mod ordered_stages;
mod path_platform;
mod pipeline;
mod place;
mod plan_template;
mod prediction;
mod projection;
mod quantities;
mod rank_waits;
mod recipe;
mod recompute_choice;
mod relaxation;
mod replicas;
mod report;
mod report_text;
mod request;
mod search_bounds;
mod shape_class;
mod stack_support;
mod stages;
mod step;
mod support_row;
mod update_memory;

pub use any_pipeline::OpenPipelines;
pub use budget::{ROUNDING, fits_budget};
pub use error::Error;
pub use estimate_all::estimate_until;
pub use estimate_all::{ConfigLine, estimate_all};
pub use estimator::Estimator;
pub use evaluator::Evaluator;
pub use headroom::BudgetSizes;
pub use job_numbers::{JobNumbers, refused};
pub use layer_room::OpenBoundaries;
pub use memory::ModelStates;
pub use memory_fit::MemoryChoices;
pub use model_work::{ModelWork, Undecided};
pub use open_shards::{FitLimits, Sharding};
pub use rank_waits::OpenOrders;
pub use recipe::recipe;
pub use relaxation::StepCost;
pub use report::{
    Comm, EstimateReport, Memory, Mesh, Overhead, Predicted, Recomputed, SCHEMA, StageMemory, StageReport, TimeShares,
};
pub use report_text::part_name;
pub use request::check_sizes;
pub use request::{EstimateRequest, HEADROOM};
pub use search_bounds::{BoundKind, LargeShare};
pub use stack_support::{Beyond, beyond, check_pins};
pub use support_row::lacks;
