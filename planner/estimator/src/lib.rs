//! Predicted step time and memory of a configuration. No program is made, and no device is needed.
//!
//! Data flow:
//! 1. A request names a model, a cluster, a stack and a configuration (`request`).
//! 2. `place` fits the configuration to the devices.
//! 3. `blocks` plans the model's blocks on the axes below pp and estimates their cost.
//! 4. `stages` partitions the model into stages; `pipeline` orders and simulates them.
//! 5. `replicas` adds the communication of data-parallel ranks analytically; `memory` does so for memory.
//! 6. `step` combines these into a step and an [`EstimateReport`].
//!
//! A cost database (`cost_database`) keeps the results that configurations share, as queries on projections of them
//! (`projection`). An [`Estimator`] has one for each model, platform and number formats; an [`Evaluator`] works on one.

mod auto;
mod beyond;
mod blocks;
mod bounds;
mod budget;
mod candidate;
mod cost_database;
mod estimator;
mod evaluator;
mod fitting;
mod floor;
mod least;
mod many;
mod memory;
mod model_plans;
mod order;
mod ordered;
mod path;
mod pipeline;
mod place;
mod prediction;
mod projection;
mod recipe;
mod replicas;
mod report;
mod request;
mod resize;
mod shape;
mod stages;
mod step;
mod tensors;
mod work;

pub use beyond::{beyond, check_pins};
pub use bounds::Ask;
pub use budget::{ROUNDING, has_room};
pub use estimator::Estimator;
pub use evaluator::Evaluator;
pub use fitting::Means;
pub use floor::Floor;
pub use many::estimate_until;
pub use many::{Line, estimate_all};
pub use memory::ModelStates;
pub use place::pinned;
pub use recipe::recipe;
pub use report::{
    Comm, EstimateReport, Memory, Mesh, Predicted, Recomputed, SCHEMA, StageMemory, StageReport, TimeShares,
};
pub use request::check_size;
pub use request::{EstimateRequest, MEMORY_MARGIN};
pub use work::{Undecided, Work};
