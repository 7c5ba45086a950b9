//! Price of the chance to fit: the best step at other chances than the request's.

use super::explore::Explorer;
use super::request::PlanRequest;
use crate::error::Error;
use compiler::deadline::Deadline;
use estimator::{EstimateReport, Estimator};
use ir::options::ParallelConfig;
use serde::{Deserialize, Serialize};

/// Chances to fit whose best steps an answer states, the highest first.
pub const CHANCES: [f64; 4] = [0.95, 0.9, 0.8, 0.5];

/// Least gain over the fastest configuration at the request's chance for which another one is searched, as a share of its step: plans call less
/// a tie.
const WORTH_SEARCHING: f64 = 0.02;

/// The best step among configurations that keep a chance to fit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AtChance {
    /// The least chance that the fullest device holds its memory.
    pub chance: f64,
    /// The best configuration in full.
    pub parallel: ParallelConfig,
    /// Seconds of its step.
    pub step_time_s: f64,
    /// Predicted memory of its fullest device, in GiB.
    pub device_gib: f64,
    /// Chance that this device holds it.
    pub chance_to_fit: f64,
    /// Time saved, as a fraction of the plan's time; negative if it is slower.
    pub gain: f64,
}

impl AtChance {
    fn of(chance: f64, best: &EstimateReport, plan: &EstimateReport) -> AtChance {
        let step_time_s = best.predicted.step_time_s;
        AtChance {
            chance,
            parallel: best.parallel.clone(),
            step_time_s,
            device_gib: best.predicted.fullest().device,
            chance_to_fit: best.predicted.chance_to_fit,
            gain: 1.0 - step_time_s / plan.predicted.step_time_s,
        }
    }
}

/// The job of a plan at other chances to fit.
struct Chances<'a> {
    estimator: &'a Estimator,
    request: &'a PlanRequest,
    plan: &'a EstimateReport,
    /// Seconds below which a configuration is worth stating.
    below: f64,
    until: &'a Deadline,
    /// Configurations that are the best ones at the chances that they were searched for.
    known: Vec<EstimateReport>,
    /// Seconds below which searches found no configuration at lower chances: none at higher ones takes less.
    least: f64,
}

/// The best steps at each of [`CHANCES`], the highest chance first. Chances at which nothing fits are left out, and those that a deadline
/// cuts off; a request with a fixed margin has none.
///
/// At a lower chance the plan stays the best, unless a search finds one that gains a fiftieth. The gain is over `fastest_s`, the seconds of
/// the fastest configuration at the request's chance. The best one at a chance is also the best at all higher ones that it keeps. Mostly one
/// search therefore answers for all chances below the plan's.
///
/// # Errors
/// The job cannot be opened, as in [`Explorer::new`].
pub(crate) fn at_chances(
    estimator: &Estimator,
    request: &PlanRequest,
    (plan, fastest_s): (&EstimateReport, f64),
    until: &Deadline,
) -> Result<Vec<AtChance>, Error> {
    if request.memory_margin.is_some() {
        return Ok(Vec::new());
    }
    let asked = 1.0 - request.headroom / 100.0;
    let below = fastest_s * (1.0 - WORTH_SEARCHING);
    let mut job = Chances { estimator, request, plan, below, until, known: Vec::new(), least: 0.0 };
    let mut found = Vec::new();
    for chance in CHANCES.into_iter().rev() {
        if chance >= asked {
            job.least = job.least.max(fastest_s);
        }
        let best = if chance < asked { job.at_lower(chance)? } else { job.at_higher(chance, asked)? };
        if until.is_over() {
            break;
        }
        found.extend(best.map(|best| AtChance::of(chance, &best, plan)));
    }
    found.reverse();
    Ok(found)
}

impl Chances<'_> {
    /// The best configuration at a chance that the plan keeps, if all lower ones are searched.
    fn at_lower(&mut self, chance: f64) -> Result<Option<EstimateReport>, Error> {
        let is_searched = self.known.last().is_some_and(|best| keeps(best, chance));
        if !is_searched {
            let best = self.best(chance, self.below)?.unwrap_or_else(|| self.plan.clone());
            self.known.push(best);
        }
        Ok(self.known.last().cloned())
    }

    /// The best configuration at no lower a chance than the request's, `asked`, at which the plan's own search found none that
    /// gains.
    fn at_higher(&mut self, chance: f64, asked: f64) -> Result<Option<EstimateReport>, Error> {
        if chance == asked || keeps(self.plan, chance) {
            return Ok(Some(self.plan.clone()));
        }
        self.best(chance, f64::INFINITY)
    }

    /// The best configuration at a chance, of those that take less than `below` seconds: first of those near the plan, whose best one bounds
    /// the search of all.
    fn best(&mut self, chance: f64, below: f64) -> Result<Option<EstimateReport>, Error> {
        let request = PlanRequest { headroom: 100.0 * (1.0 - chance), ..self.request.clone() };
        let explorer = Explorer::new(self.estimator, &request, &self.plan.parallel, self.until.clone())?;
        let near = explorer.better("", below, Some(self.plan.parallel.clone()));
        let below = near.as_ref().map_or(below, |near| near.predicted.step_time_s * (1.0 - WORTH_SEARCHING));
        if below <= self.least {
            return Ok(near);
        }
        let best = explorer.better("", below, None);
        self.least = best.as_ref().map_or(below, |best| best.predicted.step_time_s);
        Ok(best.or(near))
    }
}

/// Returns `true` if a configuration keeps a chance to fit.
fn keeps(report: &EstimateReport, chance: f64) -> bool {
    report.predicted.chance_to_fit >= chance
}
