//! Cache of predictions of configurations near the best one.

use super::axes::KEYS;
use super::brief::{holds, said};
use super::compare::{ALIKE, better};
use super::near::{Near, near};
use crate::plan::{Explorer, PlanRequest};
use compiler::deadline::Deadline;
use compiler::error::Error;
use compiler::layout;
use estimator::beyond;
use estimator::{EstimateReport, EstimateRequest, Estimator, estimate_until};
use ir::goal::Layout;

/// Where no layout near the best one fits with a choice, one that takes so many times its time is looked for.
const MOST_SLOWER: f64 = 4.0;

/// The keys of which each choice makes a layout of another [kind](crate::search::Kind).
const KINDS: [&str; 7] = ["tp", "cp", "pp", "ep", "etp", "zero", "mbs"];

/// What is known beside the best layout.
pub(super) struct Pool {
    /// Layouts that change one choice of the best one.
    near: Vec<(Near, Result<EstimateReport, Error>)>,
    /// The runners-up.
    others: Vec<EstimateReport>,
    /// What the layout must have.
    pins: String,
}

impl Pool {
    /// Predicts what is near the best layout; nothing if the deadline comes before all of it is known.
    pub(super) fn around(
        estimator: &Estimator,
        request: &PlanRequest,
        best: &EstimateReport,
        others: &[EstimateReport],
        deadline: &Deadline,
    ) -> Option<Pool> {
        let mut near = near(&best.layout, request.global_batch);
        if let Some(stack) = estimator.stack(&request.stack).ok().filter(|_| !request.beyond_stack) {
            near.retain(|near| beyond(&near.layout, &stack).is_empty());
        }
        let asked: Vec<EstimateRequest> = near.iter().map(|near| request.under(layout::print(&near.layout))).collect();
        let answers: Vec<_> = estimate_until(estimator, &asked, deadline).into_iter().collect::<Option<_>>()?;
        Some(Pool { near: near.into_iter().zip(answers).collect(), others: others.to_vec(), pins: request.pin.clone() })
    }

    /// Without what a search has proved to be no layout of its space: what fits, has the pins and is faster than its best.
    pub(super) fn inside(mut self, best: &EstimateReport) -> Pool {
        let pins = self.pins.clone();
        let time = |report: &EstimateReport| report.predicted.step_time_s;
        let outside = |report: &EstimateReport| {
            report.predicted.fits && holds(&report.layout, &pins) && time(report) < time(best)
        };
        self.near.retain(|(_, answer)| !answer.as_ref().is_ok_and(outside));
        self
    }

    /// With the runners-up among what has another choice, so that no note says less of it than they do.
    pub(super) fn with_runners_up(mut self) -> Pool {
        for (key, more) in KEYS.into_iter().flat_map(|key| [(key, false), (key, true)]) {
            let Some(choice) = self.without(key, more).map(|known| said(&known.layout, key)) else { continue };
            let have = self.others.iter().filter(|other| said(&other.layout, key) == choice);
            let have: Vec<EstimateReport> = have.cloned().collect();
            self.near
                .extend(have.into_iter().map(|other| (Near { key, more, layout: other.layout.clone() }, Ok(other))));
        }
        self
    }

    /// With the best layout of each choice that the best one does not have: what is near is no more than the first guess.
    pub(super) fn explored(mut self, explorer: &Explorer<'_>, best: &EstimateReport) -> Pool {
        let sides = KEYS.into_iter().flat_map(|key| [(key, false), (key, true)]);
        for (key, more) in sides {
            let Some((pin, known)) = self.open(key, more) else { continue };
            let below = if known.predicted.fits {
                known.predicted.step_time_s * (1.0 - ALIKE)
            } else {
                best.predicted.step_time_s * MOST_SLOWER
            };
            let around = Some(known.layout.clone());
            if let Some(other) = explorer.better(&pin, best.layout.offload, below, around) {
                self.near.push((Near { key, more, layout: other.layout.clone() }, Ok(other)));
            }
        }
        self
    }

    /// The choice that is known on this side of a key, as a pin, if a better layout may have it.
    fn open(&self, key: &str, more: bool) -> Option<(String, &EstimateReport)> {
        let known = self.without(key, more).filter(|_| !self.is_pinned(key))?;
        let pin = said(&known.layout, key);
        // Runners-up are the best of their kind: the first with a choice that makes another kind is the best that has it.
        let is_proved = KINDS.contains(&key) && self.others.iter().any(|other| said(&other.layout, key) == pin);
        // No pin says that a choice is left to the stack; without offload nothing fits where it is proposed.
        let is_none = matches!(key, "stages" | "offload") || ["=all", "=default"].iter().any(|end| pin.ends_with(end));
        (!is_proved && !is_none).then_some((pin, known))
    }

    /// The best layout that changes this choice to more or to less of it, whether or not it may.
    pub(super) fn without(&self, key: &str, more: bool) -> Option<&EstimateReport> {
        let of = self.near.iter().filter(|(near, _)| near.key == key && near.more == more);
        of.filter_map(|(_, answer)| answer.as_ref().ok()).reduce(better)
    }

    /// Why no layout that changes this choice so is legal; nothing where one is, or none was tried.
    pub(super) fn refused(&self, key: &str, more: bool) -> Option<(&Layout, &Error)> {
        let mut of = self.near.iter().filter(|(near, _)| near.key == key && near.more == more).peekable();
        let (first, _) = of.peek()?;
        let layout = &first.layout;
        let errors: Option<Vec<&Error>> = of.map(|(_, answer)| answer.as_ref().err()).collect();
        errors.and_then(|errors| errors.into_iter().next()).map(|error| (layout, error))
    }

    /// All that was predicted and has what the layout must have.
    pub(super) fn reports(&self) -> impl Iterator<Item = &EstimateReport> {
        let near = self.near.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        self.others.iter().chain(near.filter(|report| holds(&report.layout, &self.pins)))
    }

    /// The runners-up, and what is near, as it was asked for.
    pub(super) fn layouts(&self) -> impl Iterator<Item = &Layout> {
        self.others.iter().map(|report| &report.layout).chain(self.near.iter().map(|(near, _)| &near.layout))
    }

    /// Whether the layout must have this choice.
    pub(super) fn is_pinned(&self, key: &str) -> bool {
        layout::says(&self.pins, key)
    }
}
