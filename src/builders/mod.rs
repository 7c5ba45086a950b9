//! Builders of requests: typed setters over the request structs of the crates below, and one call that runs the request.

mod compile;
mod estimate;
mod plan;
#[cfg(feature = "train")]
mod training;
mod values;

pub use compile::{CompileBuilder, compile};
pub use estimate::{EstimateBuilder, estimate};
pub use plan::{Plan, PlanBuilder, plan};
#[cfg(feature = "train")]
pub use training::{TrainBuilder, train};
pub use values::{ClusterInput, ConfigText, ModelInput, OptimizerText, PrecisionText, StackInput, UpdateRule};
