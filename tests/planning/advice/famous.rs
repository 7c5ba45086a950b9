//! Published training runs of large models: each is predicted to fit where it ran, and its step time is within the predicted interval.
//!
//! `tests/planning/advice/famous.jsonl` has the runs, with their sources.

use super::page::{self, root};
use meshwright::estimator::{EstimateReport, EstimateRequest, Estimator};
use serde::Deserialize;
use std::fs;
use support::units::{gib, percent, time};

/// The least chance to fit. Stacks without memory of published runs have wide intervals.
const LEAST_CHANCE: f64 = 0.75;

/// Comments around the table in docs/plans.md.
const MARKS: [&str; 2] = ["<!-- famous: begin -->\n", "<!-- famous: end -->\n"];

#[derive(Deserialize)]
struct Run {
    name: String,
    source: String,
    /// Seconds of a step: least and most, by what the source leaves open.
    published_s: [f64; 2],
    request: EstimateRequest,
}

fn runs() -> Vec<Run> {
    let text = fs::read_to_string(root().join("tests/planning/advice/famous.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{line}: {why}"))).collect()
}

fn checked(run: &Run, report: &EstimateReport) {
    let (name, predicted) = (&run.name, &report.predicted);
    assert!(report.beyond_stack.is_empty(), "{name}: {:?}", report.beyond_stack);
    let (device, capacity) = (predicted.fullest().device, predicted.memory_gib.capacity);
    assert!(device <= capacity, "{name}: {device} of {capacity} GiB");
    assert!(predicted.fits, "{name} does not fit");
    let chance = predicted.chance_to_fit;
    assert!(chance >= LEAST_CHANCE, "{name} runs out of memory with a chance of {}", 1.0 - chance);
    let [least, most] = run.published_s;
    let interval = predicted.interval_s;
    assert!(interval.low <= most && least <= interval.high, "{name}: {least} to {most} s, predicted {interval:?}");
}

fn row(run: &Run, report: &EstimateReport) -> String {
    let (predicted, [least, most]) = (&report.predicted, run.published_s);
    let published = if least < most { format!("{} to {}", time(least), time(most)) } else { time(least) };
    let interval = predicted.interval_s;
    format!(
        "| {} | `{}`, `{}` | {} | {}, {} to {} | {} | {} |\n",
        run.name,
        run.request.stack,
        run.request.parallel,
        published,
        time(predicted.step_time_s),
        time(interval.low),
        time(interval.high),
        gib(predicted.fullest().device),
        percent(predicted.chance_to_fit).trim(),
    )
}

#[test]
fn published_runs_fit_and_take_as_long() {
    let estimator = Estimator::new();
    let mut table = String::from(
        "| run | stack and configuration | published step | predicted step, 80 % interval | memory of a device | chance to fit |\n\
         |---|---|---|---|---|---|\n",
    );
    let mut sources: Vec<String> = Vec::new();
    for run in runs() {
        let report = estimator.estimate(&run.request).unwrap_or_else(|why| panic!("{}: {why:?}", run.name));
        table += &row(&run, &report);
        sources.push(format!("- {}: {}\n", run.name, run.source));
        checked(&run, &report);
    }
    page::holds(MARKS, &format!("{table}\nSources:\n\n{}", sources.concat()));
}
