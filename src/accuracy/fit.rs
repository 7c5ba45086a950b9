//! The fitted constants of a stack, searched within their intervals.

use super::runs::Run;
use super::score::{Scored, score};
use super::summary::quantile;
use cost::{Constant, Stack};
use estimator::Estimator;
use std::collections::BTreeMap;

/// A stack brought near to runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// With its constants and its residuals.
    pub stack: Stack,
    /// Mean of |ln(predicted / measured)| over the runs, each at most 0.35.
    pub error: f64,
    /// Runs that were predicted.
    pub rows: usize,
    /// Constants at an end of their interval: the model misses something that they stand in for.
    pub at_end: Vec<&'static str>,
}

/// Beyond it a run says no more: it went wrong in a way that the model does not know.
pub(super) const FAR: f64 = 0.35;

/// The first step of the search, and the one after which it ends, as shares of the intervals.
const STEPS: [f64; 2] = [0.2, 0.004];

/// The same from values that are near already.
const NEAR: [f64; 2] = [0.05, 0.02];

/// Nearer to an end of its interval than this share of it, a constant is at the end.
const END: f64 = 0.005;

/// Searches the constants of a stack for the least error over runs on it: one constant after the other, up and down by a
/// step that shrinks when nothing is gained (Hooke and Jeeves 1961, pattern search). Sources weigh by the square root of
/// their runs. The same runs give the same constants.
pub fn fit(estimator: &Estimator, stack: &Stack, runs: &[&Run]) -> Fit {
    search(estimator, stack, runs, STEPS)
}

/// The same for other runs of a stack that is fitted: a search nearby.
pub(super) fn refit(estimator: &Estimator, stack: &Stack, runs: &[&Run]) -> Stack {
    search(estimator, stack, runs, NEAR).stack
}

fn search(estimator: &Estimator, stack: &Stack, runs: &[&Run], [mut step, last]: [f64; 2]) -> Fit {
    let mut best = stack.clone();
    let mut error = error_of(&scored(estimator, &best, runs));
    while step > last {
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
            // What helped once may help again.
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
    let logs: Vec<f64> = scored.iter().filter_map(Scored::ratio).map(|ratio| -ratio.ln()).collect();
    best.residual = [0.1, 0.9].map(|share| (quantile(&logs, share) * 1e3).round() / 1e3);
    let at_end = best.fitted.by_name().into_iter().filter(|(_, constant)| is_at_end(constant)).map(|it| it.0);
    Fit { at_end: at_end.collect(), rows: logs.len(), error, stack: best }
}

fn scored<'a>(estimator: &Estimator, stack: &Stack, runs: &[&'a Run]) -> Vec<Scored<'a>> {
    score(&estimator.with_stack(stack.clone()), runs.iter().copied())
}

/// Mean of the capped errors, sources by the square root of their runs.
fn error_of(scored: &[Scored<'_>]) -> f64 {
    let mut sources: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for row in scored {
        let Some(ratio) = row.ratio() else { continue };
        let (sum, count) = sources.entry(&row.run.source).or_default();
        (*sum, *count) = (*sum + ratio.ln().abs().min(FAR), *count + 1.0);
    }
    let weight: f64 = sources.values().map(|(_, count)| count.sqrt()).sum();
    sources.values().map(|(sum, count)| sum / count.sqrt()).sum::<f64>() / weight.max(1.0)
}

/// The stack with one constant moved by a share of its interval, within it.
fn moved(stack: &Stack, constant: usize, share: f64) -> Stack {
    let mut stack = stack.clone();
    let (_, it) = &mut stack.fitted.by_name()[constant];
    it.value = within(it, it.value + share * (it.high - it.low));
    stack
}

/// As far beyond the second as that is from the first.
fn ahead(first: &Stack, second: &Stack) -> Stack {
    let (mut from, mut stack) = (first.clone(), second.clone());
    for ((_, to), (_, from)) in stack.fitted.by_name().into_iter().zip(from.fitted.by_name()) {
        to.value = within(to, 2.0 * to.value - from.value);
    }
    stack
}

/// In the interval, and in steps of about a thousandth of it, so that it prints short. One without an interval is not fitted.
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
