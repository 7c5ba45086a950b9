//! Answer to `--why-not`: the best configuration with the given pins, compared with the plan.

use super::Find;
use super::brief::{brief, differences};
use super::compare::{ALIKE, memory, misfit, pace, seconds};
use super::difference::difference_of;
use super::plan_file::request_of;
use crate::error::Error;
use crate::plan::{Difference, Objective, PlanReport, PlanRequest};
use compiler::deadline::Deadline;
use compiler::parallel::{Pins, pinned};
use estimator::{EstimateReport, Estimator, Predicted};
use serde::Serialize;
use support::units::gib;

/// Answer to `--why-not`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WhyNot {
    /// Pins of the question.
    pub asked: String,
    /// `slower`, `faster`, `same`, `does not fit`, `impossible`, or `unknown` if the search stopped before it found any.
    pub verdict: &'static str,
    /// Text of the answer.
    pub message: String,
    /// Best configuration with the pins.
    pub parallel: Option<String>,
    /// Prediction of its step.
    pub predicted: Option<Predicted>,
    /// Difference from the plan.
    pub difference: Option<Difference>,
    /// Differences of the parts of the step from the plan's in seconds, largest first.
    pub seconds: Vec<(&'static str, f64)>,
    /// Differences of the parts of the worst rank's memory from the plan's in GiB.
    pub gib: Vec<(&'static str, f64)>,
}

/// Compares the plan with the best configuration that has these pins in addition to the plan's own, or with the best known at the
/// deadline.
///
/// # Errors
/// The pins are not a configuration, or the plan's cluster or stack is not known.
pub fn why_not(
    estimator: &Estimator,
    report: &PlanReport,
    pins: &str,
    (find, deadline): (&Find<'_>, &Deadline),
) -> Result<WhyNot, Error> {
    Pins::parse(pins)?;
    let (plan, asked) = (&report.chosen, request_of(report));
    let deadline = deadline.left().map(|left| left.max(f64::MIN_POSITIVE));
    let request = PlanRequest { pin: pinned(&asked.pin, pins), top: 1, deadline, ..asked };
    let answer = |verdict, message: String, other: Option<&EstimateReport>| WhyNot {
        asked: pins.to_string(),
        verdict,
        message,
        parallel: other.map(|other| brief(&other.parallel)),
        predicted: other.map(|other| other.predicted.clone()),
        difference: None,
        seconds: other.map_or_else(Vec::new, |other| told(seconds(&plan.predicted, &other.predicted))),
        gib: other.map_or_else(Vec::new, |other| told(memory(&plan.predicted, &other.predicted))),
    };
    let found = match find(estimator, &request) {
        Ok(found) => found,
        Err(error) => return Ok(answer("impossible", error.to_string(), None)),
    };
    let is_proved = found.search.complete;
    let Some(other) = found.best.first() else {
        let closest = found.closest.as_ref();
        let told = |closest: &EstimateReport| {
            let least = if found.closest_is_least {
                "needs the least memory"
            } else {
                "needs the least memory of those evaluated"
            };
            let misfit = misfit(&plan.predicted, &closest.predicted);
            format!("{} {least} and {misfit}", brief(&closest.parallel))
        };
        let none = if is_proved { "nothing fits" } else { "nothing that fits was found before the deadline" };
        let message = closest.map_or_else(|| none.to_string(), told);
        return Ok(answer(if is_proved { "does not fit" } else { "unknown" }, message, closest));
    };
    let changed = differences(&plan.parallel, &other.parallel);
    let difference = difference_of(&plan.predicted, &other.predicted, Objective::Time);
    let more = other.predicted.fullest().device - plan.predicted.fullest().device;
    let (verdict, message) = match difference.slower {
        _ if changed.is_empty() => ("same", "the plan already has it".to_string()),
        slower if slower.abs() < ALIKE => {
            ("same", format!("{changed} is equally fast and uses {} memory per device", signed(more)))
        }
        slower => (
            if slower < 0.0 { "faster" } else { "slower" },
            format!(
                "{changed} is {}; it uses {} memory per device",
                pace(&plan.predicted, &other.predicted),
                signed(more)
            ),
        ),
    };
    let tie = report.search.as_ref().filter(|search| search.complete).map_or(0.0, |search| search.tie);
    let until = match difference.slower {
        _ if !is_proved => "; it is the best found before the deadline",
        slower if (-tie..-ALIKE).contains(&slower) => "; the plan is simpler",
        _ => "",
    };
    Ok(WhyNot { difference: Some(difference), ..answer(verdict, message + until, Some(other)) })
}

fn told(changes: Vec<super::compare::Change>) -> Vec<(&'static str, f64)> {
    changes.into_iter().filter(|change| change.by != 0.0).map(|change| (change.what, change.by)).collect()
}

fn signed(more: f64) -> String {
    format!("{} {}", gib(more.abs()), if more < 0.0 { "less" } else { "more" })
}
