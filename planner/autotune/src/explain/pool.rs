//! Cache of predictions of configurations near the best one.

use super::brief::holds;
use super::compare::{ALIKE, better};
use super::near::near;
use crate::plan::{Explorer, Objective, PlanRequest};
use crate::search::keys::{NOTED, Neighbour, row};
use compiler::deadline::Deadline;
use compiler::parallel::{self, item};
use estimator::{EstimateReport, EstimateRequest, Estimator, ROUNDING, estimate_until};
use ir::config_key::ConfigKey;
use ir::options::ParallelConfig;
use support::parallel::each;

/// Time limit of a search for a configuration with another choice, as a multiple of the best time, if no neighbour fits.
const MOST_SLOWER: f64 = 4.0;

/// Text of a choice, with that of its context: `cp_kind=ring,cp=4`.
fn said_in_context(parallel: &ParallelConfig, key: ConfigKey) -> String {
    let keys = std::iter::once(key).chain(row(key).context);
    keys.map(|key| item(key, parallel)).collect::<Vec<_>>().join(",")
}

/// Predictions known in addition to that of the best configuration.
pub(super) struct Pool {
    /// Neighbours of the best configuration.
    near: Vec<(Neighbour, Result<EstimateReport, estimator::Error>)>,
    /// Alternatives.
    others: Vec<EstimateReport>,
    /// Pinned options.
    pins: String,
    /// `true` if the deadline left no neighbour out.
    is_whole: bool,
}

impl Pool {
    /// Predicts the neighbours of the best configuration until the deadline.
    pub(super) fn around(
        estimator: &Estimator,
        request: &PlanRequest,
        best: &EstimateReport,
        others: &[EstimateReport],
        deadline: &Deadline,
    ) -> Pool {
        let mut near = near(&best.parallel, request.global_batch);
        let asked = request.under(String::new());
        if let Ok(beyond) = estimator.beyond(&asked, near.iter().map(|near| &near.parallel)) {
            let mut beyond = beyond.into_iter();
            near.retain(|_| beyond.next().is_none_or(|beyond| beyond.is_empty()));
        }
        let asked: Vec<EstimateRequest> = near.iter().map(|near| request.of(&near.parallel)).collect();
        let answers = estimate_until(estimator, &asked, deadline);
        let is_whole = answers.iter().all(Option::is_some);
        let known = near.into_iter().zip(answers).filter_map(|(near, answer)| Some((near, answer?)));
        // Recomputation that is chosen again may be that of the best one.
        let other = known.filter(|(_, answer)| !answer.as_ref().is_ok_and(|near| near.parallel == best.parallel));
        let near = other.collect();
        Pool { near, others: others.to_vec(), pins: request.pin.clone(), is_whole }
    }

    /// The pool, unless the deadline left neighbours out.
    pub(super) fn whole(self) -> Option<Pool> {
        self.is_whole.then_some(self)
    }

    /// Removes configurations that fit, have the pins and are better than the least value of the objective: they are outside the
    /// space of the search.
    pub(super) fn inside(mut self, objective: Objective, least: f64) -> Pool {
        let pins = self.pins.clone();
        let outside = |report: &EstimateReport| {
            let value = objective.value(&report.predicted);
            report.predicted.keeps_headroom && holds(&report.parallel, &pins) && value < least * (1.0 - ROUNDING)
        };
        self.near.retain(|(_, answer)| !answer.as_ref().is_ok_and(outside));
        self
    }

    /// Adds alternatives with another choice that beat the known neighbours.
    pub(super) fn with_runners_up(mut self) -> Pool {
        for (key, more) in NOTED.into_iter().flat_map(|key| [(key, false), (key, true)]) {
            let Some(choices) = self.without(key, more).map(|known| said_in_context(&known.parallel, key)) else {
                continue;
            };
            let have = self.others.iter().filter(|other| said_in_context(&other.parallel, key) == choices);
            let have: Vec<EstimateReport> = have.cloned().collect();
            self.near.extend(
                have.into_iter().map(|other| (Neighbour { key, more, parallel: other.parallel.clone() }, Ok(other))),
            );
        }
        self
    }

    /// Adds the best configuration of each choice that the best one lacks; a neighbour is only a first guess.
    pub(super) fn explored(mut self, explorer: &Explorer<'_>, best: &EstimateReport) -> Pool {
        let sides: Vec<(ConfigKey, bool)> = NOTED.into_iter().flat_map(|key| [(key, false), (key, true)]).collect();
        let found = each(&sides, |&(key, more)| {
            let (pin, known) = self.open(key, more)?;
            let below = if known.predicted.keeps_headroom {
                known.predicted.step_time_s * (1.0 - ALIKE)
            } else {
                best.predicted.step_time_s * MOST_SLOWER
            };
            let other = explorer.better(&pin, below, Some(known.parallel.clone()))?;
            Some((Neighbour { key, more, parallel: other.parallel.clone() }, Ok(other)))
        });
        self.near.extend(found.into_iter().flatten());
        self
    }

    /// Choice on this side of a key, as a pin, if a better configuration may have it.
    fn open(&self, key: ConfigKey, more: bool) -> Option<(String, &EstimateReport)> {
        let known = self.without(key, more).filter(|_| !self.is_pinned(key))?;
        let choice = item(key, &known.parallel);
        // Alternatives are the best of their kind, so the first with a choice of another kind is the best with that choice.
        let is_proved = row(key).is_kind && self.others.iter().any(|other| item(key, &other.parallel) == choice);
        // No pin leaves a choice to the stack.
        let is_none = !row(key).is_pinned_in_searches || ["=all", "=default"].iter().any(|end| choice.ends_with(end));
        (!is_proved && !is_none).then(|| (said_in_context(&known.parallel, key), known))
    }

    /// Best configuration with more or with less of this choice, valid or not.
    pub(super) fn without(&self, key: ConfigKey, more: bool) -> Option<&EstimateReport> {
        let of = self.near.iter().filter(|(near, _)| near.key == key && near.more == more);
        of.filter_map(|(_, answer)| answer.as_ref().ok()).reduce(better)
    }

    /// Error of the configurations that change this choice; `None` if one is valid, or none was tried.
    pub(super) fn refused(&self, key: ConfigKey, more: bool) -> Option<(&ParallelConfig, &estimator::Error)> {
        let mut of = self.near.iter().filter(|(near, _)| near.key == key && near.more == more).peekable();
        let (first, _) = of.peek()?;
        let parallel = &first.parallel;
        let errors: Option<Vec<&estimator::Error>> = of.map(|(_, answer)| answer.as_ref().err()).collect();
        errors.and_then(|errors| errors.into_iter().next()).map(|error| (parallel, error))
    }

    /// All predictions of configurations with the pins.
    pub(super) fn reports(&self) -> impl Iterator<Item = &EstimateReport> {
        let near = self.near.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        self.others.iter().chain(near.filter(|report| holds(&report.parallel, &self.pins)))
    }

    /// Alternatives and neighbours that have the pins.
    pub(super) fn configs(&self) -> impl Iterator<Item = &ParallelConfig> {
        self.others.iter().map(|report| &report.parallel).chain(self.near.iter().map(|(near, _)| &near.parallel))
    }

    /// Returns whether this choice is pinned.
    pub(super) fn is_pinned(&self, key: ConfigKey) -> bool {
        parallel::has_key(&self.pins, key)
    }
}
