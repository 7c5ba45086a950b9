//! Cache of predictions of configurations near the best one.

use super::brief::{holds, said};
use super::choices::KEYS;
use super::compare::{ALIKE, better};
use super::near::{Near, near};
use crate::plan::{Explorer, PlanRequest};
use compiler::deadline::Deadline;
use compiler::parallel;
use estimator::{EstimateReport, EstimateRequest, Estimator, estimate_until};
use ir::options::ParallelConfig;

/// Time limit of a search for a configuration with another choice, as a multiple of the best time, if no neighbour fits.
const MOST_SLOWER: f64 = 4.0;

/// Keys whose choices change the [kind](crate::search::Kind) of a configuration.
const KINDS: [&str; 7] = ["tp", "cp", "pp", "ep", "etp", "zero", "mbs"];

/// Predictions known in addition to that of the best configuration.
pub(super) struct Pool {
    /// Neighbours of the best configuration.
    near: Vec<(Near, Result<EstimateReport, estimator::Error>)>,
    /// Alternatives.
    others: Vec<EstimateReport>,
    /// Pinned options.
    pins: String,
}

impl Pool {
    /// Predicts the neighbours of the best configuration; `None` if the deadline passes first.
    pub(super) fn around(
        estimator: &Estimator,
        request: &PlanRequest,
        best: &EstimateReport,
        others: &[EstimateReport],
        deadline: &Deadline,
    ) -> Option<Pool> {
        let mut near = near(&best.parallel, request.global_batch);
        let asked = request.under(String::new());
        if let Ok(beyond) = estimator.beyond(&asked, near.iter().map(|near| &near.parallel)) {
            let mut beyond = beyond.into_iter();
            near.retain(|_| beyond.next().is_none_or(|beyond| beyond.is_empty()));
        }
        let asked: Vec<EstimateRequest> =
            near.iter().map(|near| request.under(parallel::print(&near.parallel))).collect();
        let answers: Vec<_> = estimate_until(estimator, &asked, deadline).into_iter().collect::<Option<_>>()?;
        Some(Pool { near: near.into_iter().zip(answers).collect(), others: others.to_vec(), pins: request.pin.clone() })
    }

    /// Removes configurations that fit, have the pins and take less than the least time: a complete search has proved them outside
    /// its space.
    pub(super) fn inside(mut self, least_s: f64) -> Pool {
        let pins = self.pins.clone();
        let outside = |report: &EstimateReport| {
            report.predicted.fits && holds(&report.parallel, &pins) && report.predicted.step_time_s < least_s
        };
        self.near.retain(|(_, answer)| !answer.as_ref().is_ok_and(outside));
        self
    }

    /// Adds alternatives with another choice that beat the known neighbours.
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

    /// Adds the best configuration of each choice that the best one lacks; a neighbour is only a first guess.
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
            if let Some(other) = explorer.better(&pin, below, around) {
                self.near.push((Near { key, more, parallel: other.parallel.clone() }, Ok(other)));
            }
        }
        self
    }

    /// Choice on this side of a key, as a pin, if a better configuration may have it.
    fn open(&self, key: &str, more: bool) -> Option<(String, &EstimateReport)> {
        let known = self.without(key, more).filter(|_| !self.is_pinned(key))?;
        let pin = said(&known.parallel, key);
        // Alternatives are the best of their kind, so the first with a choice of another kind is the best with that choice.
        let is_proved = KINDS.contains(&key) && self.others.iter().any(|other| said(&other.parallel, key) == pin);
        // No pin leaves a choice to the stack. Offloading is proposed only if nothing fits without it.
        let is_none = matches!(key, "stages" | "offload" | "offload_optimizer")
            || ["=all", "=default"].iter().any(|end| pin.ends_with(end));
        (!is_proved && !is_none).then_some((pin, known))
    }

    /// Best configuration with more or with less of this choice, valid or not.
    pub(super) fn without(&self, key: &str, more: bool) -> Option<&EstimateReport> {
        let of = self.near.iter().filter(|(near, _)| near.key == key && near.more == more);
        of.filter_map(|(_, answer)| answer.as_ref().ok()).reduce(better)
    }

    /// Error of the configurations that change this choice; `None` if one is valid, or none was tried.
    pub(super) fn refused(&self, key: &str, more: bool) -> Option<(&ParallelConfig, &estimator::Error)> {
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
    pub(super) fn is_pinned(&self, key: &str) -> bool {
        parallel::has_key(&self.pins, key)
    }
}
