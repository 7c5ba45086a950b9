//! Cache of predictions of configurations near the best one.

use super::brief::{holds, said};
use super::choices::KEYS;
use super::compare::{ALIKE, better};
use super::near::{Near, near};
use crate::plan::{Explorer, PlanRequest};
use compiler::deadline::Deadline;
use compiler::error::Error;
use compiler::parallel;
use estimator::beyond;
use estimator::{EstimateReport, EstimateRequest, Estimator, estimate_until};
use ir::options::ParallelConfig;

/// Factor on the best time up to which a configuration with a choice is searched, if none near the best one fits.
const MOST_SLOWER: f64 = 4.0;

/// The keys of which each choice makes a configuration of another [kind](crate::search::Kind).
const KINDS: [&str; 7] = ["tp", "cp", "pp", "ep", "etp", "zero", "mbs"];

/// Known configurations other than the best.
pub(super) struct Pool {
    /// Configurations that change one choice of the best one.
    near: Vec<(Near, Result<EstimateReport, Error>)>,
    /// The runners-up.
    others: Vec<EstimateReport>,
    /// The pins of the configuration.
    pins: String,
}

impl Pool {
    /// Predicts what is near the best configuration; nothing if the deadline comes before all of it is known.
    pub(super) fn around(
        estimator: &Estimator,
        request: &PlanRequest,
        best: &EstimateReport,
        others: &[EstimateReport],
        deadline: &Deadline,
    ) -> Option<Pool> {
        let mut near = near(&best.parallel, request.global_batch);
        if let Some(stack) = estimator.stack(&request.stack).ok().filter(|_| !request.beyond_stack) {
            near.retain(|near| beyond(&near.parallel, &stack).is_empty());
        }
        let asked: Vec<EstimateRequest> =
            near.iter().map(|near| request.under(parallel::print(&near.parallel))).collect();
        let answers: Vec<_> = estimate_until(estimator, &asked, deadline).into_iter().collect::<Option<_>>()?;
        Some(Pool { near: near.into_iter().zip(answers).collect(), others: others.to_vec(), pins: request.pin.clone() })
    }

    /// Without what a search has proved to be no configuration of its space: what fits, has the pins and is faster than its best.
    pub(super) fn inside(mut self, best: &EstimateReport) -> Pool {
        let pins = self.pins.clone();
        let time = |report: &EstimateReport| report.predicted.step_time_s;
        let outside = |report: &EstimateReport| {
            report.predicted.fits && holds(&report.parallel, &pins) && time(report) < time(best)
        };
        self.near.retain(|(_, answer)| !answer.as_ref().is_ok_and(outside));
        self
    }

    /// With the runners-up among what has another choice, so that no note says less of it than they do.
    pub(super) fn with_runners_up(mut self) -> Pool {
        for (key, more) in KEYS.into_iter().flat_map(|key| [(key, false), (key, true)]) {
            let Some(choice) = self.without(key, more).map(|known| said(&known.parallel, key)) else { continue };
            let have = self.others.iter().filter(|other| said(&other.parallel, key) == choice);
            let have: Vec<EstimateReport> = have.cloned().collect();
            self.near.extend(
                have.into_iter().map(|other| (Near { key, more, parallel: other.parallel.clone() }, Ok(other))),
            );
        }
        self
    }

    /// With the best configuration of each choice that the best one does not have: what is near is no more than the first guess.
    pub(super) fn explored(mut self, explorer: &Explorer<'_>, best: &EstimateReport) -> Pool {
        let sides = KEYS.into_iter().flat_map(|key| [(key, false), (key, true)]);
        for (key, more) in sides {
            let Some((pin, known)) = self.open(key, more) else { continue };
            let below = if known.predicted.fits {
                known.predicted.step_time_s * (1.0 - ALIKE)
            } else {
                best.predicted.step_time_s * MOST_SLOWER
            };
            let around = Some(known.parallel.clone());
            if let Some(other) = explorer.better(&pin, best.parallel.offload, below, around) {
                self.near.push((Near { key, more, parallel: other.parallel.clone() }, Ok(other)));
            }
        }
        self
    }

    /// The choice that is known on this side of a key, as a pin, if a better configuration may have it.
    fn open(&self, key: &str, more: bool) -> Option<(String, &EstimateReport)> {
        let known = self.without(key, more).filter(|_| !self.is_pinned(key))?;
        let pin = said(&known.parallel, key);
        // Runners-up are the best of their kind: the first with a choice that makes another kind is the best that has it.
        let is_proved = KINDS.contains(&key) && self.others.iter().any(|other| said(&other.parallel, key) == pin);
        // No pin says that a choice is left to the stack; without offload nothing fits where it is proposed.
        let is_none = matches!(key, "stages" | "offload") || ["=all", "=default"].iter().any(|end| pin.ends_with(end));
        (!is_proved && !is_none).then_some((pin, known))
    }

    /// The best configuration that changes this choice to more or to less of it, whether or not it may.
    pub(super) fn without(&self, key: &str, more: bool) -> Option<&EstimateReport> {
        let of = self.near.iter().filter(|(near, _)| near.key == key && near.more == more);
        of.filter_map(|(_, answer)| answer.as_ref().ok()).reduce(better)
    }

    /// Why no configuration that changes this choice so is legal; nothing where one is, or none was tried.
    pub(super) fn refused(&self, key: &str, more: bool) -> Option<(&ParallelConfig, &Error)> {
        let mut of = self.near.iter().filter(|(near, _)| near.key == key && near.more == more).peekable();
        let (first, _) = of.peek()?;
        let parallel = &first.parallel;
        let errors: Option<Vec<&Error>> = of.map(|(_, answer)| answer.as_ref().err()).collect();
        errors.and_then(|errors| errors.into_iter().next()).map(|error| (parallel, error))
    }

    /// All that was predicted and has what the configuration must have.
    pub(super) fn reports(&self) -> impl Iterator<Item = &EstimateReport> {
        let near = self.near.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        self.others.iter().chain(near.filter(|report| holds(&report.parallel, &self.pins)))
    }

    /// The runners-up, and what is near, as it was asked for.
    pub(super) fn configs(&self) -> impl Iterator<Item = &ParallelConfig> {
        self.others.iter().map(|report| &report.parallel).chain(self.near.iter().map(|(near, _)| &near.parallel))
    }

    /// True if the configuration must have this choice.
    pub(super) fn is_pinned(&self, key: &str) -> bool {
        parallel::has_key(&self.pins, key)
    }
}
