//! The best layout for a model on a cluster, and why it is.
//!
//! The way of the data: a request names a model, a cluster, a batch and pins (`request`); the search over layouts
//! ([`planner::search`]) asks the cost model of [`crate::estimate`] (`oracle`) and gives the best and the runners-up
//! (`found`), also of those with another choice (`explore`); [`crate::explain`] says why each lost, what binds, and what more of it would buy (`report`).

mod explore;
mod found;
mod large;
mod oracle;
mod report;
mod request;
mod space;
#[cfg(test)]
mod tests;

pub(crate) use explore::{Explorer, beyond};
pub use found::{Found, find};
pub use report::{Alternative, AxisNote, Beyond, Bind, Clash, Infeasible, Loss, Search, WayOut, Why, Wish};
pub use request::{Objective, PlanRequest};
