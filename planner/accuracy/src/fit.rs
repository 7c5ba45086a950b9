//! The fitted constants of a stack, searched within their intervals.

use super::residual::residual;
use super::runs::Run;
use super::score::{Scored, score};
use cost::{Constant, Stack};
use estimator::Estimator;
use std::collections::BTreeMap;

/// Result of a fit.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// The stack with the fitted constants and its residuals.
    pub stack: Stack,
    /// Mean of |ln(predicted / measured)| over the runs, each capped at 0.35.
    pub error: f64,
    /// Number of predicted runs.
    pub rows: usize,
    /// Constants at an end of their interval. The cost model then lacks something that the constant compensates for.
    pub at_end: Vec<&'static str>,
}

/// Cap of |ln(predicted / measured)| of one run. A larger error has a cause that the cost model does not know.
pub(super) const FAR: f64 = 0.35;

/// Number of runs for each fitted constant: fewer say more about their own conditions than about a stack.
pub const RUNS_EACH: usize = 2;

/// Steps of a pattern search, as shares of a constant's interval.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    first: f64,
    /// The search ends when its step is no longer than this one.
    last: f64,
}

/// Steps of a search over the intervals.
pub(super) const STEPS: Steps = Steps { first: 0.2, last: 0.004 };

/// Steps of a search that starts from fitted values.
const NEAR: Steps = Steps { first: 0.05, last: 0.02 };

/// Share of its interval within which a constant counts as being at an end.
const END: f64 = 0.005;

/// Fits the constants of a stack to runs on it by pattern search (Hooke and Jeeves 1961). The search moves one constant
/// after the other up and down by a step, and halves the step when no move reduces the error. The weight of a source is
/// the square root of its number of runs. Equal runs give equal constants.
pub fn fit(estimator: &Estimator, stack: &Stack, runs: &[&Run]) -> Fit {
    search(estimator, stack, runs, STEPS)
}

/// Fits the constants of an already fitted stack to other runs, by a search near its values.
pub(super) fn refit(estimator: &Estimator, stack: &Stack, runs: &[&Run]) -> Stack {
    search(estimator, stack, runs, NEAR).stack
}

pub(super) fn search(estimator: &Estimator, stack: &Stack, runs: &[&Run], steps: Steps) -> Fit {
    let mut step = steps.first;
    let mut best = stack.clone();
    let mut error = error_of(&scored(estimator, &best, runs));
    while step > steps.last {
        let before = (best.clone(), error);
        for constant in 0..best.fitted.by_name().len() {
            for direction in [step, -step] {
                let other = moved(&best, constant, direction);
                let found = error_of(&scored(estimator, &other, runs));
                if found < error {
                    (best, error) = (other, found);
                    break;
                }
            }
        }
        if error < before.1 {
            // Pattern move: repeat the last improvement.
            let further = ahead(&before.0, &best);
            let found = error_of(&scored(estimator, &further, runs));
            if found < error {
                (best, error) = (further, found);
            }
        } else {
            step /= 2.0;
        }
    }
    let scored = scored(estimator, &best, runs);
    let rows = scored.iter().filter(|row| row.prediction.is_ok()).count();
    best.residual = residual(&scored);
    let at_end = best.fitted.by_name().into_iter().filter(|(_, constant)| is_at_end(constant)).map(|it| it.0);
    Fit { at_end: at_end.collect(), rows, error, stack: best }
}

pub(super) fn scored<'a>(estimator: &Estimator, stack: &Stack, runs: &[&'a Run]) -> Vec<Scored<'a>> {
    score(&estimator.with_stack(stack.clone()), runs.iter().copied())
}

/// Mean of the capped errors over sources, each weighted by the square root of its number of runs.
pub(super) fn error_of(scored: &[Scored<'_>]) -> f64 {
    let mut sources: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for row in scored {
        let Some(ratio) = row.ratio() else { continue };
        let (sum, count) = sources.entry(&row.run.source).or_default();
        (*sum, *count) = (*sum + ratio.ln().abs().min(FAR), *count + 1.0);
    }
    let weight: f64 = sources.values().map(|(_, count)| count.sqrt()).sum();
    sources.values().map(|(sum, count)| sum / count.sqrt()).sum::<f64>() / weight.max(1.0)
}

/// Returns the stack with one constant moved by a share of its interval, within the interval.
fn moved(stack: &Stack, constant: usize, share: f64) -> Stack {
    let mut stack = stack.clone();
    let (_, it) = &mut stack.fitted.by_name()[constant];
    it.value = within(it, it.value + share * (it.high - it.low));
    stack
}

/// Extrapolates from the first stack through the second by the distance between them.
fn ahead(first: &Stack, second: &Stack) -> Stack {
    let (mut from, mut stack) = (first.clone(), second.clone());
    for ((_, to), (_, from)) in stack.fitted.by_name().into_iter().zip(from.fitted.by_name()) {
        to.value = within(to, 2.0 * to.value - from.value);
    }
    stack
}

/// Clamps a value to its interval and rounds to about a thousandth of it, so that it prints in few digits. A constant
/// without an interval keeps its value.
fn within(constant: &Constant, value: f64) -> f64 {
    if constant.low >= constant.high {
        return constant.value;
    }
    let digits = 10f64.powf(3.0 - (constant.high - constant.low).log10().floor());
    ((value * digits).round() / digits).clamp(constant.low, constant.high)
}

fn is_at_end(constant: &Constant) -> bool {
    let margin = END * (constant.high - constant.low);
    constant.value - constant.low < margin || constant.high - constant.value < margin
}
