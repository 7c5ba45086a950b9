//! Differences of the alternatives from the best configuration.

use super::compare::{ALIKE, memory, pace, seconds};
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

/// The relative difference below which times are a tie with this one: [`TIE`], or half of the width of its interval as logarithms. A
/// stack fitted to a user's own runs may thus have a smaller tie.
pub(super) fn tie(predicted: &Predicted) -> f64 {
    let Interval { low, high } = predicted.interval_s;
    TIE.min((high / low).ln() / 2.0)
}

/// Difference of a prediction from the best.
pub(super) fn difference_of(best: &Predicted, other: &Predicted, objective: Objective) -> Difference {
    let slower = other.step_time_s / best.step_time_s - 1.0;
    let tie = (1.0 + slower).ln().abs() < self::tie(best);
    let reason = match objective {
        Objective::Memory => heavier(best, other),
        Objective::Time => reason(best, other),
    };
    Difference { slower, tie: tie && objective == Objective::Time, reason }
}

/// Text on the part of the step that grew most, or shrank most if the other is faster.
fn reason(best: &Predicted, other: &Predicted) -> String {
    let changes = seconds(best, other);
    if other.step_time_s < best.step_time_s * (1.0 - ALIKE) {
        let shrunk = changes.iter().find(|change| change.by < 0.0);
        let shrunk = shrunk.map_or_else(String::new, |change| format!(": {} -{}", change.what, time(-change.by)));
        return format!("nominally faster{shrunk}");
    }
    match changes.into_iter().find(|change| change.by > 0.0) {
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
