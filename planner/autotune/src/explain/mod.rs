//! Explanations of a plan: the cost and saving of each part of the configuration, why alternatives lost, which limits bind,
//! and what-if changes. For infeasible requests, the constraints that conflict and the changes that would help.
//!
//! Data flow:
//! 1. `near` makes configurations near the best one, and `pool` predicts them.
//! 2. `compare` turns a pair of predictions into text.
//! 3. This text is part of the notes on each choice (`choices`), the differences of the alternatives (`difference`), binding
//!    constraints (`constraints`) and what-if changes (`what_if`).
//! 4. If the search is not complete, the best configuration that this finds becomes the plan (`known`).
//! 5. If nothing fits, `infeasible` and `least` drop constraints until some configuration fits.

mod annotated;
mod brief;
mod choices;
mod compare;
mod constraints;
mod diff;
mod difference;
mod infeasible;
mod known;
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
use crate::plan::{
    self, AtChance, Explorer, Faster, Found, Gap, Infeasible, Objective, PlanReport, PlanRequest, Search, Why,
};
use compiler::deadline::Deadline;
use estimator::{EstimateReport, Estimator, estimate_until};
use ir::options::ParallelConfig;
use known::Known;
use pool::Pool;
use serde::Serialize;
use support::parallel::both;
use what_if::{Changed, Changes};

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
    let Found { best, closest, closest_is_least, mut search, bound, deadline } = found;
    let mut ranked = best.into_iter();
    // A search stopped before it found anything is no proof that nothing fits.
    let stopped = || if search.complete { None } else { least::any(estimator, request, &deadline) };
    let Some(best) = ranked.next().or_else(stopped) else {
        let closest = infeasible::Closest { report: closest, is_least: closest_is_least };
        let answer = infeasible::explain(estimator, request, closest, search, &deadline)?;
        return Ok(Planned::Infeasible(Box::new(answer)));
    };
    let mut known = Known::new(request, best, ranked.collect());
    let job = Job { estimator, request, deadline: &deadline };
    let why = if search.complete {
        job.of_proved(&mut known, &mut search)?
    } else {
        let why = job.of_unfinished(&mut known)?;
        search.gap = bound.map(|(least, under)| Gap { at_most: (known.value() / least - 1.0).max(0.0), under });
        why
    };
    search.take(&known.best, request);
    let Known { best, others, .. } = known;
    let alternatives = difference::alternatives(&best, others, search.objective);
    let chosen = EstimateReport { schema: plan::SCHEMA.to_string(), ..best };
    Ok(Planned::Best(Box::new(PlanReport { chosen, alternatives, search: Some(search), why })))
}

/// Explains a given configuration, which need not be the best: it is compared with those near it. The deadline may leave it without
/// reasons.
///
/// # Errors
/// The cluster or the stack is not known.
pub fn given(
    estimator: &Estimator,
    request: &PlanRequest,
    plan: PlanReport,
    deadline: &Deadline,
) -> Result<PlanReport, Error> {
    let job = Job { estimator, request, deadline };
    let pool = Pool::around(estimator, request, &plan.chosen, &[], deadline).whole();
    let why = pool.map(|pool| job.why(&plan.chosen, &pool.with_runners_up())).transpose()?.flatten();
    let chosen = EstimateReport { schema: plan::SCHEMA.to_string(), ..plan.chosen };
    Ok(PlanReport { chosen, why: why.map(|(why, _)| why), ..plan })
}

/// Configurations that the plan's own search does not look at.
struct Further {
    /// The best one beyond the stack.
    beyond: Option<Faster>,
    /// The best ones at other chances to fit.
    chances: Vec<AtChance>,
}

/// A request that is explained.
struct Job<'a> {
    estimator: &'a Estimator,
    request: &'a PlanRequest,
    deadline: &'a Deadline,
}

impl Job<'_> {
    /// Reasons for the plan of a complete search, which is the simplest of those that are hardly slower than the fastest; `None` if
    /// the deadline passes first.
    fn of_proved(&self, known: &mut Known, search: &mut Search) -> Result<Option<Why>, Error> {
        let Job { estimator, request, deadline } = *self;
        let is_explored = search.objective == Objective::Time;
        let explorer = is_explored.then(|| Explorer::new(estimator, request, &known.best.parallel, deadline.clone()));
        let explorer = explorer.transpose()?;
        let least = known.value();
        if let Some(explorer) = explorer.as_ref().filter(|_| request.tie > 0.0) {
            let within = request.tie.min(difference::tie(&known.best.predicted));
            let plan = plan::simplest(explorer, &known.best, &known.others, within);
            if plan.parallel != known.best.parallel {
                search.fastest = Some(Faster::of(&known.best, &plan));
                known.prefer(plan);
            }
        }
        if !is_explored {
            return self.reasons(known, None, least);
        }
        let fastest_s = search.fastest.as_ref().map_or(known.value(), |fastest| fastest.step_time_s);
        // They share no configurations, and many of their rounds are too small for all cores.
        let (further, why) =
            both(|| self.further(&known.best, fastest_s), || self.reasons(known, explorer.as_ref(), least));
        let why = why?;
        Further { beyond: search.beyond, chances: search.chances } = further?;
        Ok(why)
    }

    /// Reasons by configurations near the best known one, and by those that an explorer finds. Those that take less than `least` are
    /// outside the space of the search.
    fn reasons(&self, known: &Known, explorer: Option<&Explorer<'_>>, least: f64) -> Result<Option<Why>, Error> {
        let Job { estimator, request, deadline } = *self;
        let pool = Pool::around(estimator, request, &known.best, &known.others, deadline).whole();
        let pool = pool.map(|pool| {
            let pool = pool.with_runners_up().inside(request.objective, least);
            if let Some(explorer) = explorer { pool.explored(explorer, &known.best) } else { pool }
        });
        let why = pool.map(|pool| self.why(&known.best, &pool)).transpose()?.flatten();
        Ok(why.map(|(why, _)| why))
    }

    /// Results of searches beyond the stack and at other chances to fit.
    fn further(&self, best: &EstimateReport, fastest_s: f64) -> Result<Further, Error> {
        let Job { estimator, request, deadline } = *self;
        Ok(Further {
            beyond: plan::beyond(estimator, request, best, deadline.clone())?,
            chances: plan::at_chances(estimator, request, (best, fastest_s), deadline)?,
        })
    }

    /// Reasons for the best known configuration, if the search is not complete; `None` if the deadline passes first. A better
    /// configuration that they find becomes the best, and is explained in turn.
    fn of_unfinished(&self, known: &mut Known) -> Result<Option<Why>, Error> {
        let Job { estimator, request, deadline } = *self;
        loop {
            let Some(pool) = known.climb(estimator, request, deadline).whole() else { return Ok(None) };
            let pool = pool.inside(request.objective, known.value()).with_runners_up();
            let Some((why, changed)) = self.why(&known.best, &pool)? else { return Ok(None) };
            let Some(asked) = self.as_asked(&changed) else { return Ok(None) };
            if !known.learn(asked) {
                return Ok(Some(why));
            }
        }
    }

    /// Predictions of the configurations of what-if changes without the change, if the request allows them; `None` if the deadline
    /// passes first.
    fn as_asked(&self, changed: &[Changed]) -> Option<Vec<EstimateReport>> {
        let [least, most] = self.request.devices();
        let is_asked = |parallel: &&ParallelConfig| {
            (least..=most).contains(&parallel.devices()) && brief::holds(parallel, &self.request.pin)
        };
        let configs = changed.iter().map(|changed| &changed.parallel).filter(is_asked);
        let asked: Vec<_> = configs.map(|parallel| self.request.of(parallel)).collect();
        let answers: Option<Vec<_>> = estimate_until(self.estimator, &asked, self.deadline).into_iter().collect();
        Some(answers?.into_iter().flatten().collect())
    }

    /// Reasons for a configuration by those in its pool, and the what-if changes; `None` if the deadline passes first.
    fn why(&self, best: &EstimateReport, pool: &Pool) -> Result<Option<(Why, Vec<Changed>)>, Error> {
        let Job { estimator, request, deadline } = *self;
        let cluster = &*estimator.cluster(&request.cluster)?;
        let changes = Changes { estimator, request, cluster, best, pool, deadline };
        let why = |changed: Vec<Changed>| {
            let what_if: Vec<_> = changed.iter().map(|changed| changed.what_if.clone()).collect();
            let constraints = constraints::constraints(best, pool, cluster, &what_if);
            (Why { choices: choices::choices(best, pool), constraints, what_if }, changed)
        };
        Ok(changes.all().map(why))
    }
}

#[cfg(test)]
mod tests;
