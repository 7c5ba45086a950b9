//! A predicted step, as verbs print it.

use super::TableFormat;
use super::number::{count, seconds};
use super::table::table;
use crate::error::Error;
use crate::predicting::StepPrediction;
use std::collections::BTreeMap;

/// The answer as text.
pub(super) fn print(step: &StepPrediction, format: TableFormat) -> Result<String, Error> {
    if format == TableFormat::Json { super::json(step) } else { Ok(text(step)) }
}

fn text(step: &StepPrediction) -> String {
    let StepPrediction { cluster, devices, microbatches, schedule_s, program_s, ratio, mfu, .. } = step;
    let mut text = format!(
        "cluster   {cluster}, {devices} device{}, {microbatches} micro-batch{}\n\
         stages    {}: costs of stages in the order of the schedule, then the update\n\
         program   {}: the program of every rank, on clocks; {ratio:.3} of the stages' time\n",
        if *devices == 1 { "" } else { "s" },
        if *microbatches == 1 { "" } else { "es" },
        short(*schedule_s),
        short(*program_s),
    );
    if let (Some(tokens), Some(speed)) = (step.tokens, step.tokens_per_s) {
        text += &format!("speed     {} tokens/s, {} tokens a step\n", count(speed), count(tokens as f64));
    }
    text += &format!("mfu       {:.1} %\n\n", 100.0 * mfu);
    text + &shares("where the step goes", &step.shares)
}

/// A table of shares, the largest first; what rounds to nothing is left out.
pub(super) fn shares(of_what: &str, shares: &BTreeMap<String, f64>) -> String {
    let mut shares: Vec<_> = shares.iter().map(|(name, share)| (name, percent(*share), *share)).collect();
    shares.retain(|(_, percent, _)| percent.trim() != "0.0 %");
    shares.sort_by(|a, b| b.2.total_cmp(&a.2));
    let rows: Vec<_> = shares.into_iter().map(|(name, percent, _)| [name.clone(), percent]).collect();
    table([of_what, "share"], &rows)
}

/// ` 12.3 %`
pub(super) fn percent(share: f64) -> String {
    format!("{:5.1} %", 100.0 * share)
}

/// `12.3 ms`, `4.5 s`.
pub(super) fn short(time: f64) -> String {
    match time {
        time if time >= 1.0 => seconds(time),
        time if time >= 1e-3 => format!("{:.2} ms", time * 1e3),
        time => format!("{:.1} us", time * 1e6),
    }
}
