//! What the search gives.

use super::report::Search;
use super::request::PlanRequest;
use crate::error::Error;
use crate::estimate::{EstimateReport, Estimator};

/// What was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// Layouts that fit, the best first; empty: nothing fits.
    pub best: Vec<EstimateReport>,
    /// Where nothing fits: the layout that needs least memory.
    pub closest: Option<EstimateReport>,
    /// How it was found.
    pub search: Search,
}

/// The best layouts of a request; `progress` is told of what is known so far.
///
/// # Errors
/// A name is not known, pins contradict each other, or no layout serves so many devices.
pub fn find(estimator: &Estimator, request: &PlanRequest, progress: &(dyn Fn(&Search) + Sync)) -> Result<Found, Error> {
    let _ = (estimator, request, progress);
    todo!()
}
