//! Ranges of a stack's figures: those of any software on any hardware, so that a wrong unit is reported.

use crate::preset_error::out_of_range;
use crate::residual::{Errors, Job, Measured};
use crate::stack::Stack;
use crate::traits::Figure;

/// Messages about figures that are out of range.
pub(super) fn complaints(stack: &Stack) -> Vec<String> {
    let mut stack = stack.clone();
    let mut found = Vec::new();
    let fitted = stack.fitted.by_name().map(|(name, constant)| (name, *constant));
    for ((name, constant), (least, most, unit)) in fitted.into_iter().zip(FITTED) {
        let (value, low, high) = (constant.value, constant.low, constant.high);
        let each = [("value", value), ("low", low), ("high", high)];
        found.extend(each.iter().filter_map(|(part, figure)| {
            out_of_range(
                &format!("fitted.{name}.{part}"),
                *figure,
                if *part == "low" { 0.0 } else { least },
                most,
                unit,
            )
        }));
        if !(low <= value && value <= high) {
            found.push(format!("`fitted.{name}` is {value}, which does not lie between 0, low {low} and high {high}"));
        }
    }
    found.extend(stack.traits.figures().iter().filter_map(Figure::complaint));
    found.extend(errors("time", stack.residual.time));
    found.extend(errors("memory", stack.residual.memory));
    let runs = stack.residual.measured.iter().flat_map(|group| &group.sizes);
    let sizes = runs.flat_map(|sizes| Job::SIZES.into_iter().zip(*sizes));
    found.extend(sizes.filter_map(|(name, size)| {
        out_of_range(&format!("{name} in residual.measured.sizes"), size, 1.0, 1e18, "a size")
    }));
    found.extend(stack.residual.measured.iter().flat_map(shares));
    found
}

/// Messages about the shares of the peak that runs reached.
fn shares(Measured { sizes, shares, .. }: &Measured) -> Vec<String> {
    let checked =
        shares.iter().map(|&share| out_of_range("residual.measured.shares", share, 0.0, 1.0, "a share of the peak"));
    let mut found: Vec<String> = checked.flatten().collect();
    if !shares.is_empty() && shares.len() != sizes.len() {
        found.push(format!("`residual.measured.shares` has {} runs, and `sizes` {}", shares.len(), sizes.len()));
    }
    found
}

/// Messages about errors of predictions.
fn errors(name: &str, errors: Errors) -> Vec<String> {
    let Errors { low, middle, high, .. } = errors;
    let mut found = Vec::new();
    for (end, log) in [("low", low), ("middle", middle), ("high", high)] {
        let key = format!("residual.{name}.{end}");
        found.extend(out_of_range(&key, log, -5.0, 5.0, "natural logarithms of a ratio"));
    }
    if low > high {
        found.push(format!("`residual.{name}` is from {low} to {high}, expected the lower one first"));
    }
    found
}

/// Least value, greatest value and unit of each fitted constant, in the order of [`Fitted::by_name`](crate::Fitted::by_name).
const FITTED: [(f64, f64, &str); 8] = [
    (0.01, 2.0, "a share of the rate"),
    (0.01, 2.0, "a share of the rate"),
    (0.01, 100.0, "bytes moved over bytes needed"),
    (0.0, 1e4, "microseconds"),
    (0.0, 1e6, "milliseconds"),
    (0.01, 2.0, "a share of the bandwidth"),
    (0.0, 1.0, "a share of the communication"),
    (0.0, 1.0, "a share of the step"),
];
