//! Breakdown of a training run's time, as `train --profile` prints it.

use super::prediction;
use crate::train::ProfileReport;
use support::table::table;
use support::units::{count, percent, short};
use trace::KernelTime;

/// Limit on the kernels that are listed one by one.
const LISTED: usize = 16;

/// Limit on the operands whose shapes are shown.
const OPERANDS: usize = 3;

/// Formats two tables: the parts of the step, and the kernels that take longest.
pub(super) fn text(profile: &ProfileReport) -> String {
    let ProfileReport { steps, step_s, ranks, peak, model_flops_per_s, .. } = profile;
    let mut text = format!(
        "\npeak             {:.0} GFLOP/s, {:.1} GB/s (matmul and sum on all cores, measured before the run)\n\
         measured         {steps} step{} of {} on {ranks} rank{}; {:.0} GFLOP/s in the model's matmuls, mfu {:.1} %\n\n",
        peak.flops / 1e9,
        peak.bandwidth / 1e9,
        if *steps == 1 { "" } else { "s" },
        short(*step_s),
        if *ranks == 1 { "" } else { "s" },
        model_flops_per_s / 1e9,
        100.0 * model_flops_per_s / peak.flops,
    );
    text += &prediction::shares("where the ranks' time goes", &profile.shares);
    let head = ["kernel", "shapes on a rank", "calls", "time", "share", "GFLOP/s", "GB/s", "of roofline"];
    let kernels = &profile.kernels;
    let mut rows: Vec<_> = kernels.iter().take(LISTED).map(|kernel| kernel_row(profile, kernel)).collect();
    if kernels.len() > LISTED {
        rows.push(rest_row(profile, &kernels[LISTED..]));
    }
    text + "\n" + &table(head, &rows)
}

fn kernel_row(profile: &ProfileReport, kernel: &KernelTime) -> [String; 8] {
    let rate = |what: u64| format!("{:7.1}", what as f64 / kernel.seconds / 1e9);
    [
        kernel.op.clone(),
        shapes(&kernel.shapes),
        count(kernel.calls as f64),
        short(kernel.seconds),
        share(profile, kernel.seconds),
        rate(kernel.flops),
        rate(kernel.bytes),
        percent(kernel.of_roofline(&profile.peak, profile.at_once)),
    ]
}

/// Formats the shapes of the first operands.
fn shapes(all: &str) -> String {
    match all.match_indices(", ").nth(OPERANDS - 1) {
        Some((end, _)) => format!("{}, ..", &all[..end]),
        None => all.to_string(),
    }
}

fn rest_row(profile: &ProfileReport, rest: &[KernelTime]) -> [String; 8] {
    let (calls, seconds) = (rest.iter().map(|k| k.calls).sum::<u64>(), rest.iter().map(|k| k.seconds).sum::<f64>());
    let none = String::new;
    let (name, time) = (format!("{} others", rest.len()), short(seconds));
    [name, none(), count(calls as f64), time, share(profile, seconds), none(), none(), none()]
}

/// Formats a share of the time of all ranks.
fn share(profile: &ProfileReport, seconds: f64) -> String {
    percent(seconds / (profile.step_s * profile.steps as f64 * profile.ranks as f64))
}
