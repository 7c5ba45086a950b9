//! The schedule found by search: see [`crate::optimal`].

use super::{ScheduleError, solve};
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use crate::problem::{Backward, Objective, Problem};
use ir::schedule::Schedule;

/// Finds the order of the least makespan within the memory limits, on any placement, with each B as I and W.
pub(super) fn optimal(costs: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let (objective, backward, deadline) = (Objective::Makespan, Backward::Auto, None);
    let problem = Problem { costs, pipeline, objective, backward, deadline };
    Ok(solve(&problem, &|_| {})?.schedule)
}
