//! Report of a plan, in addition to the prediction of its configuration: how it was found, the alternatives, and the reasons.

use super::chances::AtChance;
use super::request::{Objective, PlanRequest};
use crate::error::Error;
use estimator::{EstimateReport, EstimateRequest, Predicted};
use ir::options::ParallelConfig;
use serde::{Deserialize, Serialize};
use support::units::{count, share};

/// Version of a plan's schema.
pub const SCHEMA: &str = "meshwright.plan/2";

/// Report of a plan: the best configuration found, and the reasons for it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlanReport {
    /// Prediction of the best configuration. In JSON its fields are next to those below.
    #[serde(flatten)]
    pub chosen: EstimateReport,
    /// Other configurations, best first; empty for a given configuration.
    #[serde(default)]
    pub alternatives: Vec<Alternative>,
    /// Result of the search; `None` for a given configuration.
    #[serde(default)]
    pub search: Option<Search>,
    /// Reasons for each choice; `None` for a given configuration, or if no time was left.
    #[serde(default)]
    pub why: Option<Why>,
}

/// Result of a search.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Search {
    /// Number of configurations of the space.
    pub space: u64,
    /// `true` if the space has more: it was too large, or the time too short, to count all.
    #[serde(default)]
    pub has_more: bool,
    /// Number of configurations whose step was predicted.
    pub candidates: u64,
    /// Number of configurations pruned by a bound on time or memory, or as duplicates.
    pub pruned: u64,
    /// Wall-clock seconds of the search.
    pub seconds: f64,
    /// `true` if the search was not stopped: under `optimal_under`, no configuration in `covers` is better than the plan or than
    /// `fastest`, or none fits.
    #[serde(default)]
    pub complete: bool,
    /// `true` if the search is complete and no configuration outside `covers` can be better either.
    pub proved_optimal: bool,
    /// Configurations that a complete search has compared, where the space has more.
    #[serde(default)]
    pub covers: Covers,
    /// Basis of the proof; `None` if the search is not complete.
    #[serde(default)]
    pub optimal_under: Option<Basis>,
    /// Distance of the plan from the optimum; `None` if the search is complete, or has no bound.
    #[serde(default)]
    pub gap: Option<Gap>,
    /// `true` if the same request gives the same answer on every machine; `false` with a deadline.
    pub deterministic: bool,
    /// Pinned options.
    pub pin: String,
    /// Objective.
    pub objective: Objective,
    /// Share of the step by which the plan may be slower than the nominally fastest configuration.
    #[serde(default)]
    pub tie: f64,
    /// Requested number of tokens to train on.
    #[serde(default)]
    pub tokens: Option<f64>,
    /// Days to train on the requested tokens.
    pub days: Option<f64>,
    /// Hours of all devices together in these days.
    #[serde(default)]
    pub device_hours: Option<f64>,
    /// Price of these hours, in the unit of the requested price.
    #[serde(default)]
    pub price: Option<f64>,
    /// Price of a million tokens, in the unit of the requested price.
    #[serde(default)]
    pub price_per_million: Option<f64>,
    /// Unit of the requested price, as it was given; empty if the price has none.
    #[serde(default)]
    pub price_unit: Option<String>,
    /// The nominally fastest configuration; `None` if it is the plan. The plan is then simpler, and slower by less than the
    /// prediction error.
    #[serde(default)]
    pub fastest: Option<Faster>,
    /// A faster configuration with the same degrees and micro-batch that the stack does not support.
    #[serde(default)]
    pub beyond: Option<Faster>,
    /// Best steps at other chances to fit, the highest chance first.
    #[serde(default)]
    pub chances: Vec<AtChance>,
}

/// Configurations that a complete search has compared.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Covers {
    /// Boundaries between stages.
    pub stages: StageCover,
    /// Share of the objective that other boundaries may save at most; 0 if `stages` are all or pinned, and `None` if no
    /// configuration fits.
    pub gap: Option<f64>,
}

/// Boundaries between stages that a complete search has compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageCover {
    /// All: others are ruled out by a lower bound over them, or not supported by the stack.
    #[default]
    All,
    /// Equal stages, those with one or two layers fewer at the ends, and those balanced by predicted time.
    Listed,
    /// Those of the request alone.
    Pinned,
}

impl Covers {
    /// Cover of a search whose best objective is `best`, if other boundaries have at least the objective `others`.
    pub(super) fn of(best: Option<f64>, others: f64, are_pinned: bool) -> Covers {
        let gap = best.map(|best| (1.0 - others / best).max(0.0));
        let is_open = gap.map_or(others.is_finite(), |gap| gap > 0.0);
        let stages = match (are_pinned, is_open) {
            (true, _) => StageCover::Pinned,
            (false, true) => StageCover::Listed,
            (false, false) => StageCover::All,
        };
        Covers { stages, gap }
    }
}

/// Basis of a search's proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Basis {
    /// The cost model alone: every configuration was predicted, or all bounds follow from its formulas.
    #[serde(rename = "cost model")]
    CostModel,
    /// Bounds of experts whose constants were sampled from random configurations: `docs/plans.md` lists them.
    #[serde(rename = "sampled bounds")]
    SampledBounds,
}

/// Distance of the plan of an unfinished search from the optimum.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Gap {
    /// Largest share by which the objective of the plan may be above that of the optimum.
    pub at_most: f64,
    /// Basis of the lower bound on the optimum.
    pub under: Basis,
}

/// Gap above which a plan has a warning. Predictions of published runs err by about as much (`docs/accuracy.md`).
const WIDE: f64 = 0.1;

impl Gap {
    /// `true` if a complete search may find a plan that is better by more than predictions err.
    pub fn is_wide(self) -> bool {
        self.at_most > WIDE
    }
}

impl Search {
    /// Verdict of a search that the deadline stopped, with the distance from the optimum.
    pub(crate) fn stopped(&self) -> String {
        let gap = self.gap.map_or_else(String::new, |Gap { at_most, under }| {
            format!(", at most {} above the optimum under {}", share(at_most), under.text())
        });
        format!("stopped by the deadline{gap}")
    }

    /// States what it takes to train on the requested tokens with a configuration.
    pub(crate) fn take(&mut self, plan: &EstimateReport, request: &PlanRequest) {
        let devices = plan.parallel.devices() as f64;
        let speed = plan.predicted.tokens_per_s_per_gpu * devices;
        let hourly = request.price.as_ref();
        self.tokens = request.tokens;
        self.days = request.tokens.map(|tokens| tokens / speed / 86400.0);
        self.device_hours = self.days.map(|days| 24.0 * days * devices);
        self.price = self.device_hours.zip(hourly).map(|(hours, hourly)| hours * hourly.amount);
        self.price_per_million = hourly.map(|hourly| hourly.amount * devices / 3600.0 / speed * 1e6);
        self.price_unit = hourly.map(|hourly| hourly.unit.clone());
    }
}

impl Basis {
    /// Text in the report.
    pub fn text(self) -> &'static str {
        match self {
            Basis::CostModel => "this cost model",
            Basis::SampledBounds => "this cost model and sampled bounds",
        }
    }
}

/// A configuration that is faster than the plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Faster {
    /// The configuration in full.
    pub parallel: ParallelConfig,
    /// Seconds of its step.
    pub step_time_s: f64,
    /// Time saved, as a fraction of the plan's time.
    pub gain: f64,
}

impl Faster {
    /// A configuration compared with the plan.
    pub(crate) fn of(other: &EstimateReport, plan: &EstimateReport) -> Faster {
        let step_time_s = other.predicted.step_time_s;
        let gain = 1.0 - step_time_s / plan.predicted.step_time_s;
        Faster { parallel: other.parallel.clone(), step_time_s, gain }
    }
}

/// A configuration that is not the best.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Alternative {
    /// The configuration in full.
    pub parallel: ParallelConfig,
    /// Prediction of its step.
    pub predicted: Predicted,
    /// Difference from the best; `None` until it is explained.
    #[serde(default)]
    pub difference: Option<Difference>,
}

/// Difference of a configuration from the best.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// Its time over the plan's time, minus 1; negative if it is nominally faster.
    pub slower: f64,
    /// `true` if the difference is within the prediction error.
    pub tie: bool,
    /// Main reason as text: the part of the step that grew most, or the missing memory.
    pub reason: String,
}

/// Reasons for a configuration.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Why {
    /// Cost and saving of each part of the configuration.
    pub choices: Vec<ChoiceNote>,
    /// Binding constraints.
    pub constraints: Vec<BindingConstraint>,
    /// What-if changes.
    pub what_if: Vec<WhatIf>,
}

/// A part of the configuration, compared with a configuration without it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChoiceNote {
    /// Text of the part: `tp=8`.
    pub choice: String,
    /// Nearest configuration without it, or with the next lower degree.
    pub against: String,
    /// Extra seconds of a step without it, negative if shorter; `None` if no such configuration exists.
    pub saves_s: Option<f64>,
    /// Seconds that the step spends on it: exposed communication of its axis, or recomputation.
    pub costs_s: f64,
    /// Extra GiB of the worst rank without it.
    pub saves_gib: Option<f64>,
    /// Meaning and cost of the choice, as text.
    pub meaning: String,
    /// Comparison with the other configuration, as text.
    pub comparison: String,
}

/// A constraint that binds, or nearly binds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BindingConstraint {
    /// `memory`, `network`, `batch`, `layers`, `heads`, ..
    pub limit: String,
    /// In words, with figures.
    pub message: String,
}

/// A what-if change, with the best configuration under it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WhatIf {
    /// The change: `memory 94.9 GiB, a fifth more`.
    #[serde(rename = "if")]
    pub condition: String,
    /// Best configuration under the change.
    pub parallel: String,
    /// Seconds of its step.
    pub step_time_s: f64,
    /// Time saved, as a fraction of the best known time without the change.
    pub gain: f64,
    /// Number of the request's devices that are left idle.
    #[serde(default)]
    pub idle: u64,
}

impl WhatIf {
    /// Seconds of the best known step without the change.
    pub(crate) fn without_s(&self) -> f64 {
        self.step_time_s / (1.0 - self.gain)
    }
}

impl Why {
    /// Seconds that the savings of what-if changes are relative to, if they are not those of the plan's step.
    pub(crate) fn savings_of(&self, plan: &EstimateReport) -> Option<f64> {
        let own = plan.predicted.step_time_s;
        let base = self.what_if.first().map(WhatIf::without_s);
        base.filter(|base| base / own < 1.0 - LEAST_SHOWN)
    }
}

/// Text of the share of a step that is saved: `4.4 %`, or `None` if that rounds to zero.
pub(crate) fn saved(gain: f64) -> Option<String> {
    (gain >= LEAST_SHOWN).then(|| share(gain))
}

/// Smallest share that is not shown as `0.0 %`.
const LEAST_SHOWN: f64 = 5e-4;

/// Report of a request for which nothing fits, or nothing that fits was found before the deadline.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Infeasible {
    /// Version of the schema.
    pub schema: String,
    /// Version of this program.
    pub tool_version: String,
    /// `infeasible`, or `unknown` if the search is not complete.
    pub status: String,
    /// The request.
    pub inputs: EstimateRequest,
    /// Configuration of least memory among those evaluated, if there is one.
    pub closest: Option<Box<EstimateReport>>,
    /// `true` if no configuration needs less than 98 % of its memory.
    pub closest_is_least: bool,
    /// Minimal set of conflicting constraints; empty if it is not known.
    pub conflict: Vec<Conflict>,
    /// Changes that would make some configuration fit, cheapest first, as found before the deadline.
    pub relaxations: Vec<Relaxation>,
    /// Result of the search.
    pub search: Search,
}

/// A constraint of a conflict: without it, some configuration fits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Conflict {
    /// `pin tp=4`, `memory 80 GiB`, `gpus 8`, ..
    pub constraint: String,
    /// In words.
    pub message: String,
}

/// A change after which some configuration fits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Relaxation {
    /// The change: `--gpus 16`, `without pin tp=1`, ..
    pub change: String,
    /// A fast configuration under the change, reached by single changes from the one of least memory.
    pub parallel: String,
    /// Seconds of its step.
    pub step_time_s: f64,
}

impl Infeasible {
    /// True if it is known that nothing fits.
    pub fn is_known(&self) -> bool {
        self.search.complete
    }

    /// The answer as an error, with the cheapest fix: [`Error::NothingFits`], or [`Error::NotFinished`] where that is not
    /// known.
    pub fn error(&self) -> Error {
        let closest = self.closest.as_ref();
        let needs = closest.map(|closest| format!("{:.1} GiB", closest.predicted.fullest().device));
        if !self.is_known() {
            return Error::NotFinished { predicted: count(self.search.candidates as f64), needs };
        }
        let fix = self.relaxations.first().map(|fix| fix.change.clone());
        Error::NothingFits { needs, is_least: self.closest_is_least, fix }
    }
}
