//! Search for the best parallel configuration, and the reasons for it.
//!
//! [`plan::find`] searches the configurations of a [`plan::PlanRequest`] by branch and bound ([`search`]) under the costs of
//! the crate `estimator`. [`explain::plan`] explains what was found: the cost of each choice, the alternatives, the limits
//! that bind, and what-if changes; or, where nothing fits, the conflict and its fixes.

pub mod explain;
pub mod plan;
mod report_text;
pub mod search;
