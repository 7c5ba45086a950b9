//! Report of a plan, in addition to the prediction of its configuration: how it was found, the alternatives, and the reasons.

use super::request::Objective;
use compiler::error::Error;
use estimator::{EstimateReport, EstimateRequest, Predicted};
use ir::catalogue::Code;
use ir::options::ParallelConfig;
use serde::{Deserialize, Serialize};
use support::units::count;

/// Version of the form of a plan.
pub const SCHEMA: &str = "meshwright.plan/2";

/// A plan: the best configuration that was found, and why it is the best.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlanReport {
    /// Its prediction. In JSON its fields are at the level of those below.
    #[serde(flatten)]
    pub chosen: EstimateReport,
    /// Other configurations, best first; none where one configuration was given.
    #[serde(default)]
    pub alternatives: Vec<Alternative>,
    /// How it was found; none where it was given.
    #[serde(default)]
    pub search: Option<Search>,
    /// Why it is as it is; none where it was given, or no time was left.
    #[serde(default)]
    pub why: Option<Why>,
}

/// How the configuration was found.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Search {
    /// Configurations of the space before anything was ruled out.
    pub space: u64,
    /// True if the space has more: it is too large, or the time was too short, to count them all.
    #[serde(default)]
    pub has_more: bool,
    /// Configurations whose step was predicted.
    pub candidates: u64,
    /// Configurations ruled out by a bound on time or memory, or as copies of another.
    pub pruned: u64,
    /// Seconds on the clock.
    pub seconds: f64,
    /// True if the search was finished: no configuration of the space is better, under `optimal_under`, or none fits.
    pub proved_optimal: bool,
    /// Basis of the proof; `None` if the search was not finished.
    #[serde(default)]
    pub optimal_under: Option<Basis>,
    /// True if the same request gives the same answer on every machine: not under a deadline.
    pub deterministic: bool,
    /// The pins of the configuration.
    pub pin: String,
    /// The objective.
    pub objective: Objective,
    /// Days to train on the tokens asked for.
    pub days: Option<f64>,
    /// A faster configuration of the same degrees and micro-batch that the stack does not support.
    #[serde(default)]
    pub beyond: Option<Beyond>,
}

/// Basis of the proof of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Basis {
    /// The cost model alone: every configuration was predicted.
    #[serde(rename = "cost model")]
    CostModel,
    /// Bounds whose constants were sampled from random configurations: `docs/plans.md` lists them.
    #[serde(rename = "sampled bounds")]
    SampledBounds,
}

impl Basis {
    /// As the report prints it.
    pub fn text(self) -> &'static str {
        match self {
            Basis::CostModel => "this cost model",
            Basis::SampledBounds => "this cost model and sampled bounds",
        }
    }
}

/// A configuration that the stack does not support.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Beyond {
    /// The configuration in full.
    pub parallel: ParallelConfig,
    /// Seconds of its step.
    pub step_time_s: f64,
    /// The time that it saves, of the plan's.
    pub gain: f64,
}

/// A configuration that is not the best.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Alternative {
    /// The configuration in full.
    pub parallel: ParallelConfig,
    /// The prediction of its step.
    pub predicted: Predicted,
    /// Why it lost; none until it is explained.
    #[serde(default)]
    pub difference: Option<Difference>,
}

/// Why a configuration lost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// Its time over the best one's, less 1.
    pub slower: f64,
    /// True if the difference is within what predictions are good for.
    pub tie: bool,
    /// The one reason, in words: the part of the step that grew most, or the memory that is missing.
    pub reason: String,
}

/// Why the configuration is as it is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Why {
    /// Costs and savings of each part of the configuration.
    pub choices: Vec<ChoiceNote>,
    /// Binding constraints.
    pub constraints: Vec<BindingConstraint>,
    /// What-ifs: gains from relaxed constraints.
    pub what_if: Vec<WhatIf>,
}

/// A part of the configuration, against the configuration without it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChoiceNote {
    /// As the configuration has it: `tp=8`.
    pub choice: String,
    /// The nearest configuration without it, or with the next lower degree.
    pub against: String,
    /// Seconds that a step is longer without it; negative: shorter; none: no such configuration exists.
    pub saves_s: Option<f64>,
    /// Seconds that the step spends on it: exposed communication of its axis, or what is recomputed.
    pub costs_s: f64,
    /// GiB of the worst rank more without it.
    pub saves_gib: Option<f64>,
    /// Meaning and cost of the choice, in words.
    pub meaning: String,
    /// How the other configuration compares, in words.
    pub comparison: String,
}

/// A limit that the configuration touches.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BindingConstraint {
    /// `memory`, `network`, `batch`, `layers`, `heads`, ..
    pub limit: String,
    /// In words, with figures.
    pub message: String,
}

/// A what-if: the best configuration under a relaxed constraint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WhatIf {
    /// The relaxed constraint: `memory 94.9 GiB, a fifth more`.
    #[serde(rename = "if")]
    pub condition: String,
    /// The best configuration then.
    pub parallel: String,
    /// Seconds of its step.
    pub step_time_s: f64,
    /// The time saved, of that of the best known configuration without it.
    pub gain: f64,
}

/// Nothing fits, or nothing that does was found until the deadline.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Infeasible {
    /// The version of the form.
    pub schema: String,
    /// The version of this program.
    pub tool_version: String,
    /// `infeasible`; `unknown` where the search was not finished.
    pub status: String,
    /// The request.
    pub inputs: EstimateRequest,
    /// The configuration that needs least memory of those that were looked at, if any was.
    pub closest: Option<Box<EstimateReport>>,
    /// True if no configuration needs less than 98 % of its memory.
    pub closest_is_least: bool,
    /// The smallest set of constraints that clash; empty where that is not known.
    pub conflict: Vec<Conflict>,
    /// Relaxations that make it fit, the cheapest first: those found until the deadline.
    pub relaxations: Vec<Relaxation>,
    /// How it was searched.
    pub search: Search,
}

/// A constraint of those that clash: without any one of them, something fits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Conflict {
    /// `pin tp=4`, `memory 80 GiB`, `gpus 8`, ..
    pub constraint: String,
    /// In words.
    pub message: String,
}

/// A change after which something fits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Relaxation {
    /// The change: `--gpus 16`, `without pin tp=1`, ..
    pub change: String,
    /// A fast configuration then: reached by single changes from the one that needs least.
    pub parallel: String,
    /// Seconds of its step.
    pub step_time_s: f64,
}

impl Infeasible {
    /// True if it is known that nothing fits.
    pub fn is_known(&self) -> bool {
        self.search.proved_optimal
    }

    /// The answer as an error, with the cheapest fix: [`Code::NothingFits`], or [`Code::NotFinished`] where that is not
    /// known.
    pub fn error(&self) -> Error {
        let closest = self.closest.as_ref();
        let needs = closest.map(|closest| format!("{:.1} GiB", closest.predicted.fullest().device));
        if !self.is_known() {
            let least = needs.map_or_else(String::new, |needs| format!(" (the smallest needs {needs})"));
            let looked = count(self.search.candidates as f64);
            return Error::NotFinished {
                message: format!("not known yet whether any configuration fits: {looked} predicted{least}"),
                help: "a longer --deadline, or none, finishes the search; --pin narrows it".to_string(),
            };
        }
        let which = if self.closest_is_least { "the smallest" } else { "the smallest of those evaluated" };
        let least = needs.map_or_else(String::new, |needs| format!("; {which} needs {needs}"));
        let help = match self.relaxations.first() {
            Some(fix) => format!("the cheapest fix: {}", fix.change),
            None => "use more devices (--gpus), fewer pins, or a smaller batch or sequence".to_string(),
        };
        Error::input(Code::NothingFits, format!("no configuration fits{least}")).help(help)
    }
}
