//! Search for the best parallel configuration, and the reasons for it.
//!
//! The crate is above `planner/estimator`, which gives all costs; only the root package is above it.
//!
//! [`plan::find`] searches the configurations of a [`plan::PlanRequest`] by branch and bound ([`search`]). [`explain::plan`]
//! explains what was found: the cost of each choice, the alternatives, the limits that bind, and what-if changes; or, where nothing
//! fits, the conflict and its fixes. [`plan::PlanReport`] is the answer.
//!
//! **Bounds.** The lower bound of a search node uses the same step model as a prediction, with every undecided option set
//! to a value that no real choice can beat. From cheapest to tightest:
//!
//! 1. degrees only: FLOPs over the peak, and the time of the largest micro-batches (`plan::large_microbatch`);
//! 2. the average rank of a planned model, also by how long activations stay on average (`estimator::any_pipeline`);
//! 3. stages with all boundaries, also by the layers that ranks have room for (`layer_room`), under all options for sharding
//!    states, and under a relaxed order (`faster_stages`, `open_shards`, `relaxation`);
//! 4. for schedules whose order does not depend on costs, the critical path (`estimator::critical_path`).
//!
//! If a configuration exceeds its memory budget, the bound adds the least time of recomputation or offload that brings the
//! saved activations under the budget (`estimator::memory_fit`).
//!
//! **Order.** The search visits the usual configurations first, then those that differ from the best in one choice, then
//! the node with the least bound. The pipeline is decided before ZeRO, and recomputation last, since neither moves a stage.
//! Without a deadline the search depends on no thread or time.
//!
//! **Reasons.** Configurations that change one choice of the best one are predicted. A search around each of them, and
//! among the usual configurations, looks for a faster one with that choice. The difference of two predictions is explained
//! by the part that grew most. Ties are pairs that published runs show predictions cannot order. If nothing fits,
//! constraints are dropped one by one until an irreducible conflict is left.
//!
//! ```
//! use estimator::Estimator;
//! use meshwright_autotune::explain::{self, Planned};
//! use meshwright_autotune::plan::{PlanRequest, find};
//!
//! let estimator = Estimator::new();
//! let request = PlanRequest::new("tiny-llama", "h100", 2, 128, 16);
//! let found = find(&estimator, &request, &|_| ())?;
//! let Planned::Best(report) = explain::plan(&estimator, &request, found)? else { panic!("nothing fits") };
//! assert_eq!(report.chosen.parallel.devices(), 2);
//! # Ok::<(), compiler::error::Error>(())
//! ```

pub mod error;
pub mod explain;
pub mod plan;
mod report_text;
pub mod search;

pub use report_text::TEXT_WIDTH;
