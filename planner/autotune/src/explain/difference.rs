//! Differences of the alternatives from the best configuration.

use super::compare::{memory, pace, seconds};
use crate::plan::{Alternative, Difference, Objective};
use cost::Interval;
use estimator::{EstimateReport, Predicted};
use support::units::{gib, time};

/// Returns the alternatives, each with its difference from the best.
pub(super) fn alternatives(
    best: &EstimateReport,
    others: Vec<EstimateReport>,
    objective: Objective,
) -> Vec<Alternative> {
    let alternative = |other: EstimateReport| Alternative {
        difference: Some(difference_of(&best.predicted, &other.predicted, objective)),
        parallel: other.parallel,
        predicted: other.predicted,
    };
    others.into_iter().map(alternative).collect()
}

/// Relative difference below which predictions hardly order two configurations. Of the pairs of published runs of one job
/// (`tests/accuracy/runs.jsonl`), predictions order three of five correctly below it, and three of four above it.
pub const TIE: f64 = 0.05;

/// Difference of a prediction from the best. Two times are a tie if they differ by less than [`TIE`] and by less than half of
/// the width of the best's interval, as logarithms. A stack fitted to a user's own runs may thus have a smaller tie.
pub(super) fn difference_of(best: &Predicted, other: &Predicted, objective: Objective) -> Difference {
    let Interval { low, high } = best.interval_s;
    let slower = other.step_time_s / best.step_time_s - 1.0;
    let tie = (1.0 + slower).ln().abs() < TIE.min((high / low).ln() / 2.0);
    let reason = match objective {
        Objective::Memory => heavier(best, other),
        Objective::Time => reason(best, other),
    };
    Difference { slower, tie: tie && objective == Objective::Time, reason }
}

/// Text on the part of the step that grew most.
fn reason(best: &Predicted, other: &Predicted) -> String {
    match seconds(best, other).into_iter().find(|change| change.by > 0.0) {
        Some(change) if other.step_time_s > best.step_time_s => format!("{} +{}", change.what, time(change.by)),
        _ if other.fullest().device > best.fullest().device => format!("equally fast, {}", heavier(best, other)),
        _ => pace(best, other),
    }
}

/// Text on the part of the memory that grew most.
fn heavier(best: &Predicted, other: &Predicted) -> String {
    let more = other.fullest().device - best.fullest().device;
    let grown = memory(best, other).into_iter().find(|change| change.by > 0.0);
    let grown = grown.map_or_else(String::new, |change| format!(", {} +{}", change.what, gib(change.by)));
    format!("{} more per device{grown}", gib(more))
}
