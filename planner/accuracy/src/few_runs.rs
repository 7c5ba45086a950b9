//! A fit to the runs of one user, which may be few: no more constants than the runs can tell apart, and errors on runs that were left
//! out.

use super::fit::{Fit, RUNS_EACH, STEPS, error_of, refit, scored, search};
use super::residual::residual;
use super::runs::Run;
use super::score::Scored;
use cost::Stack;
use estimator::Estimator;

/// Parts of the runs that are left out, one after the other.
const PARTS: usize = 8;

/// Result of a fit to few runs.
#[derive(Clone, PartialEq, Debug)]
pub struct FewFit {
    /// The stack with the fitted constants. Its residual is that of runs that were left out.
    pub fit: Fit,
    /// Names of the fitted constants.
    pub fitted: Vec<&'static str>,
    /// The stack with intervals of the fitted constants alone, to be fitted to parts of the runs.
    pub narrow: Stack,
}

/// Fits one constant for every [`RUNS_EACH`] runs: first the one that alone reduces the error most, then the next one with it, as in a
/// stepwise regression. The other constants keep their values. Equal runs give equal constants.
pub fn fit_few(estimator: &Estimator, stack: &Stack, runs: &[&Run]) -> FewFit {
    let fitted = chosen(estimator, stack, runs);
    let mut fit = search(estimator, &only(stack, &fitted), runs, STEPS);
    let left_out = left_out(estimator, &fit.stack, runs);
    fit.stack.residual = residual(&left_out);
    let narrow = fit.stack.clone();
    fit.stack = with_intervals(fit.stack, stack);
    FewFit { fit, fitted, narrow }
}

/// Names of the constants to fit.
fn chosen(estimator: &Estimator, stack: &Stack, runs: &[&Run]) -> Vec<&'static str> {
    let open: Vec<&'static str> =
        stack.clone().fitted.by_name().into_iter().filter(|(_, it)| it.low < it.high).map(|(name, _)| name).collect();
    let most = runs.len() / RUNS_EACH;
    if most >= open.len() {
        return open;
    }
    let mut fitted: Vec<&'static str> = Vec::new();
    while fitted.len() < most {
        let others = open.iter().copied().filter(|name| !fitted.contains(name));
        let with = |name: &'static str| {
            let names: Vec<_> = fitted.iter().copied().chain([name]).collect();
            (search(estimator, &only(stack, &names), runs, STEPS).error, name)
        };
        let best = others.map(with).min_by(|a, b| a.0.total_cmp(&b.0));
        let before = match fitted.as_slice() {
            [] => error_of(&scored(estimator, stack, runs)),
            names => search(estimator, &only(stack, names), runs, STEPS).error,
        };
        match best {
            Some((error, name)) if error < before => fitted.push(name),
            _ => break,
        }
    }
    fitted
}

/// The stack with the intervals of the other constants closed.
fn only(stack: &Stack, names: &[&'static str]) -> Stack {
    let mut stack = stack.clone();
    for (name, constant) in stack.fitted.by_name() {
        if !names.contains(&name) {
            (constant.low, constant.high) = (constant.value, constant.value);
        }
    }
    stack
}

/// The fitted stack with the intervals that its constants have in another.
fn with_intervals(mut fitted: Stack, stack: &Stack) -> Stack {
    let mut stack = stack.clone();
    for ((_, own), (_, other)) in fitted.fitted.by_name().into_iter().zip(stack.fitted.by_name()) {
        (own.low, own.high) = (other.low, other.high);
    }
    fitted
}

/// Predictions of each part of the runs by constants that were fitted to the others.
fn left_out<'a>(estimator: &Estimator, stack: &Stack, runs: &[&'a Run]) -> Vec<Scored<'a>> {
    let parts = PARTS.min(runs.len());
    let predicted = |part: usize| {
        let is_out = |at: &usize| at % parts == part;
        let take = |out: bool| (0..runs.len()).filter(|at| is_out(at) == out).map(|at| runs[at]).collect::<Vec<_>>();
        let rest = take(false);
        let other = if rest.is_empty() { stack.clone() } else { refit(estimator, stack, &rest) };
        scored(estimator, &other, &take(true))
    };
    (0..parts).flat_map(predicted).collect()
}
