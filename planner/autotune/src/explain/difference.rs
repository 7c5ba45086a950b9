//! Reasons why the alternatives lost.

use super::compare::{memory, pace, seconds};
use crate::plan::{Alternative, Difference, Objective};
use estimator::{EstimateReport, Predicted};
use support::units::{gib, time};

/// The others with the reason of each. `residual` are the logarithms of measured over predicted time that a tenth, and nine
/// tenths, of the stack's runs stay below.
pub(super) fn alternatives(
    best: &EstimateReport,
    others: Vec<EstimateReport>,
    residual: [f64; 2],
    objective: Objective,
) -> Vec<Alternative> {
    let alternative = |other: EstimateReport| Alternative {
        difference: Some(difference_of(&best.predicted, &other.predicted, residual, objective)),
        parallel: other.parallel,
        predicted: other.predicted,
    };
    others.into_iter().map(alternative).collect()
}

/// Relative differences below which predictions hardly tell which of two configurations is faster: of the pairs of published runs of
/// one job in `tests/accuracy/runs.jsonl`, they order three of five right below it, and three of four above it.
pub const TIE: f64 = 0.05;

/// Why one prediction lost against another. Two times are a tie where they differ by less than [`TIE`], and by less than half
/// of the spread of the stack's residual: a stack that is fitted to a user's own runs may tell more.
pub(super) fn difference_of(
    best: &Predicted,
    other: &Predicted,
    residual: [f64; 2],
    objective: Objective,
) -> Difference {
    let slower = other.step_time_s / best.step_time_s - 1.0;
    let tie = (1.0 + slower).ln().abs() < TIE.min((residual[1] - residual[0]) / 2.0);
    let reason = match objective {
        Objective::Memory => heavier(best, other),
        Objective::Time => reason(best, other),
    };
    Difference { slower, tie: tie && objective == Objective::Time, reason }
}

/// The part of the step that grew most.
fn reason(best: &Predicted, other: &Predicted) -> String {
    match seconds(best, other).into_iter().find(|change| change.by > 0.0) {
        Some(change) if other.step_time_s > best.step_time_s => format!("{} +{}", change.what, time(change.by)),
        _ if other.fullest().device > best.fullest().device => format!("equally fast, {}", heavier(best, other)),
        _ => pace(best, other),
    }
}

/// The part of the memory that grew most.
fn heavier(best: &Predicted, other: &Predicted) -> String {
    let more = other.fullest().device - best.fullest().device;
    let grown = memory(best, other).into_iter().find(|change| change.by > 0.0);
    let grown = grown.map_or_else(String::new, |change| format!(", {} +{}", change.what, gib(change.by)));
    format!("{} more per device{grown}", gib(more))
}
