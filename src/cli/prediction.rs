//! Text and JSON of a predicted step.

use super::TableFormat;
use crate::error::Error;
use crate::predicting::StepPrediction;
use std::collections::BTreeMap;
use support::table::table;
use support::units::{count, percent, short};

/// Formats the prediction.
pub(super) fn print(step: &StepPrediction, format: TableFormat) -> Result<String, Error> {
    if format == TableFormat::Json { super::json(step) } else { Ok(text(step)) }
}

fn text(step: &StepPrediction) -> String {
    let StepPrediction { cluster, devices, microbatches, schedule_s, program_s, ratio, mfu, .. } = step;
    let mut text = format!(
        "cluster   {cluster}, {devices} device{}, {microbatches} micro-batch{}\n\
         stages    {} (stage costs in schedule order, then the update)\n\
         simulated {} (per-rank program; {ratio:.3}x of the stage estimate)\n",
        if *devices == 1 { "" } else { "s" },
        if *microbatches == 1 { "" } else { "es" },
        short(*schedule_s),
        short(*program_s),
    );
    if let (Some(tokens), Some(speed)) = (step.tokens, step.tokens_per_s) {
        text += &format!("speed     {} tokens/s, {} tokens per step\n", count(speed), count(tokens as f64));
    }
    text += &format!("mfu       {:.1} %\n\n", 100.0 * mfu);
    text + &shares("where the step goes", &step.shares)
}

/// Table of shares, largest first. Shares that round to 0 are left out.
pub(super) fn shares(of_what: &str, shares: &BTreeMap<String, f64>) -> String {
    let mut shares: Vec<_> = shares.iter().map(|(name, share)| (name, percent(*share), *share)).collect();
    shares.retain(|(_, percent, _)| percent.trim() != "0.0 %");
    shares.sort_by(|a, b| b.2.total_cmp(&a.2));
    let rows: Vec<_> = shares.into_iter().map(|(name, percent, _)| [name.clone(), percent]).collect();
    table([of_what, "share"], &rows)
}
