//! Search for the best parallel configuration, and the reasons for it.
//!
//! The crate is above `planner/estimator`, which gives all costs; only the root package is above it.
//!
//! [`plan::find`] searches the configurations of a [`plan::PlanRequest`] by branch and bound ([`search`]). [`explain::plan`]
//! explains what was found: the cost of each choice, the alternatives, the limits that bind, and what-if changes; or, where nothing
//! fits, the conflict and its fixes. [`plan::PlanReport`] is the answer.
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
mod keys;
pub mod plan;
mod report_text;
pub mod search;

pub use report_text::TEXT_WIDTH;
