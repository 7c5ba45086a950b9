//! Explanations of a plan: the cost and saving of each part of the configuration, why alternatives lost, which limits bind,
//! and what-if changes. For infeasible requests, the constraints that conflict and the changes that would help.
//!
//! Data flow:
//! 1. `near` makes configurations near the best one, and `pool` predicts them.
//! 2. `compare` turns a pair of predictions into text.
//! 3. This text is part of the notes on each choice (`choices`), the differences of the alternatives (`difference`), binding
//!    constraints (`constraints`) and what-if changes (`what_if`).
//! 4. If nothing fits, `infeasible` and `least` drop constraints until some configuration fits.

mod annotated;
mod brief;
mod choices;
mod compare;
mod constraints;
mod diff;
mod difference;
mod infeasible;
mod least;
mod near;
mod page;
mod plan_file;
mod pool;
mod what_if;
mod why_not;

pub use annotated::{annotated, annotated_closest, compiled};
pub use brief::{brief, differences};
pub(crate) use compare::signed;
pub use diff::{Diff, diff};
pub use difference::TIE;
pub use page::{page, page_of_conflict};
pub use plan_file::{plan_schema, read_plan, request_of};
pub use why_not::{WhyNot, why_not};

use crate::error::Error;
use crate::plan::{self, Explorer, Faster, Found, Infeasible, Objective, PlanReport, PlanRequest, Search, Why};
use compiler::deadline::Deadline;
use estimator::{EstimateReport, Estimator};
use pool::Pool;
use serde::Serialize;

/// Search for the best configurations of a request: [`crate::plan::find`].
pub type Find<'a> = dyn Fn(&Estimator, &PlanRequest) -> Result<Found, Error> + 'a;

/// Answer to a request to plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Planned {
    /// The best configuration, explained.
    Best(Box<PlanReport>),
    /// Nothing fits, or nothing that fits was found before the deadline.
    Infeasible(Box<Infeasible>),
}

/// Explains a search result, by the best configuration with each other choice. If nothing fits, it is explained by the
/// configurations of least memory of weaker requests. The deadline may cut explanations short.
///
/// # Errors
/// The cluster or the stack is not known, or the search's token is cancelled.
pub fn plan(estimator: &Estimator, request: &PlanRequest, found: Found) -> Result<Planned, Error> {
    let deadline = found.deadline.clone();
    let planned = explained(estimator, request, found);
    deadline.check_cancelled()?;
    planned
}

fn explained(estimator: &Estimator, request: &PlanRequest, found: Found) -> Result<Planned, Error> {
    let Found { best, closest, closest_is_least, mut search, deadline } = found;
    let mut ranked = best.into_iter();
    // A search stopped before it found anything is no proof that nothing fits.
    let stopped = || if search.complete { None } else { least::any(estimator, request, &deadline) };
    let Some(best) = ranked.next().or_else(stopped) else {
        let closest = infeasible::Closest { report: closest, is_least: closest_is_least };
        let answer = infeasible::explain(estimator, request, closest, search, &deadline)?;
        return Ok(Planned::Infeasible(Box::new(answer)));
    };
    let mut others: Vec<EstimateReport> = ranked.collect();
    let mut best = best;
    let is_explored = search.complete && search.objective == Objective::Time;
    let explorer = is_explored.then(|| Explorer::new(estimator, request, &best.parallel, deadline.clone()));
    let explorer = explorer.transpose()?;
    if let Some(explorer) = explorer.as_ref().filter(|_| request.tie > 0.0) {
        let plan = plan::simplest(explorer, &best, &others, request.tie.min(difference::tie(&best.predicted)));
        if plan.parallel != best.parallel {
            others.retain(|other| other.parallel != plan.parallel);
            search.fastest = Some(Faster::of(&best, &plan));
            search.take(&plan, request);
            others.insert(0, std::mem::replace(&mut best, plan));
        }
    }
    let why = why(estimator, request, &best, &others, (&search, explorer.as_ref(), &deadline))?;
    if search.complete && search.objective == Objective::Time {
        search.beyond = plan::beyond(estimator, request, &best, deadline.clone())?;
    }
    let alternatives = difference::alternatives(&best, others, search.objective);
    let chosen = EstimateReport { schema: plan::SCHEMA.to_string(), ..best };
    Ok(Planned::Best(Box::new(PlanReport { chosen, alternatives, search: Some(search), why })))
}

/// Reasons for the best known configuration; `None` if the deadline passes first.
fn why(
    estimator: &Estimator,
    request: &PlanRequest,
    best: &EstimateReport,
    others: &[EstimateReport],
    (search, explorer, deadline): (&Search, Option<&Explorer<'_>>, &Deadline),
) -> Result<Option<Why>, Error> {
    let cluster = estimator.cluster(&request.cluster)?;
    let Some(pool) = Pool::around(estimator, request, best, others, deadline) else { return Ok(None) };
    let pool = pool.with_runners_up();
    let pool = if let Some(explorer) = explorer {
        let fastest = search.fastest.as_ref().map_or(best.predicted.step_time_s, |fastest| fastest.step_time_s);
        pool.inside(fastest).explored(explorer, best)
    } else {
        pool
    };
    let what_ifs = what_if::what_ifs(estimator, request, &cluster, best, &pool, deadline);
    Ok(what_ifs.map(|what_ifs| Why {
        choices: choices::choices(best, &pool),
        constraints: constraints::constraints(best, &pool, &cluster, &what_ifs),
        what_if: what_ifs,
    }))
}

#[cfg(test)]
mod tests;
