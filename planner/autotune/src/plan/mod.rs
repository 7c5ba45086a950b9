//! The best configuration for a model on a cluster.
//!
//! Data flow:
//! 1. A request names a model, a cluster, a batch and pins (`request`).
//! 2. The search over configurations ([`crate::search`]) evaluates the cost model of [`estimator`] (`oracle`).
//! 3. The search returns the best configuration and its alternatives (`found`), and those with another choice (`explore`).
//! 4. Of configurations that are equally fast within the prediction error, the plan is the simplest (`simplest`).
//! 5. Searches at other chances to fit state what the headroom costs (`chances`).
//! 6. [`crate::explain`] adds differences, binding constraints and what-if changes (`report`).

mod chances;
mod explore;
mod found;
mod large_microbatch;
mod oracle;
mod price;
mod report;
mod request;
mod simplest;
mod space;
mod stack_rules;
#[cfg(test)]
mod stage_tests;
#[cfg(test)]
mod tests;

pub(crate) use chances::at_chances;
pub use chances::{AtChance, CHANCES};
pub use explore::{Explorer, beyond};
pub use found::{Found, Progress, find, find_until_cancelled};
pub(crate) use report::saved;
pub use report::{
    Alternative, Basis, BindingConstraint, ChoiceNote, Conflict, Covers, Difference, Faster, Gap, Infeasible,
    PlanReport, Relaxation, SCHEMA, Search, StageCover, WhatIf, Why,
};
pub use request::{Objective, PlanRequest};
pub(crate) use simplest::simplest;
