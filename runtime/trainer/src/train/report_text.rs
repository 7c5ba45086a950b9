//! A training run and its profile as text.

use super::report::{ProfileReport, TrainReport};
use data::packing::LossOn;
use inspect::predicting::share_table;
use std::fmt;
use support::table::table;
use support::units::{count, percent, seconds, share, short};
use trace::KernelTime;

/// Limit on the kernels that are listed one by one.
const LISTED: usize = 16;

/// Limit on the operands whose shapes are shown.
const OPERANDS: usize = 3;

/// The losses, the baseline, the speed and the outputs, and the profile if there is one; ends in a newline.
impl fmt::Display for TrainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self))
    }
}

/// Two tables: the parts of the step, and the kernels that take longest; begins with an empty line.
impl fmt::Display for ProfileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&profile_text(self))
    }
}

fn text(report: &TrainReport) -> String {
    let mut text = String::new();
    if let Some(loss) = report.train_loss {
        text += &format!("train loss       {loss:.4} nats per token, over the last steps\n");
    }
    let part = if report.valid_share < 1.0 {
        format!("{} of the held-out part (--final-eval-batches)", share(report.valid_share))
    } else {
        "the whole held-out part".to_string()
    };
    let counted = match report.run.examples.map(|examples| examples.loss_on) {
        Some(LossOn::Completion) => "the tokens whose label counts",
        _ => "ends of documents included",
    };
    text += &format!("validation loss  {:.4} nats per token, over {part}, {counted}\n", report.valid_loss);
    let by_byte = report.byte_perplexity.map_or_else(String::new, |byte| format!(", {byte:.4} per byte"));
    text += &format!("perplexity       {:.4} per token{by_byte}\n", report.perplexity);
    if let (Some(bigram), Some(below)) = (report.run.bigram_entropy, report.below_bigram) {
        let side = if below >= 0.0 { "below" } else { "above" };
        text += &format!(
            "baseline         {bigram:.4} nats/byte (byte-bigram model): the loss is {:.4} {side} it\n",
            below.abs()
        );
    }
    if let (Some(last), Some([dropped, choices])) = (report.dropped, report.dropped_choices) {
        text += &match dropped {
            0 => format!("token drop       none of {} expert assignments\n", count(choices as f64)),
            _ => format!(
                "token drop       {} of {} expert assignments, above the capacity; {} over the last steps\n",
                count(dropped as f64),
                count(choices as f64),
                share(last)
            ),
        };
    }
    if report.skipped > 0 {
        let steps = if report.skipped == 1 { "step" } else { "steps" };
        text += &format!(
            "skipped          the updates of {} {steps}, whose gradient norm was not finite\n",
            report.skipped
        );
    }
    let saved = report.checkpoint.as_ref().and_then(|path| path.file_name());
    let saved = saved.map_or_else(String::new, |name| format!(", {}", name.display()));
    let devices = report.run.devices;
    text += &format!(
        "speed            {} tokens/s on {devices} device{}, {} tokens in {}\n\
             outputs          {}: metrics.jsonl, run.toml{}\n",
        count(report.tokens_per_s),
        if devices == 1 { "" } else { "s" },
        count(report.tokens as f64),
        seconds(report.seconds),
        report.out.display(),
        saved
    );
    text + &report.profile.as_ref().map_or_else(String::new, ProfileReport::to_string)
}

/// Formats two tables: the parts of the step, and the kernels that take longest.
fn profile_text(profile: &ProfileReport) -> String {
    let ProfileReport { steps, step_s, ranks, peak, peak_by, model_flops_per_s, .. } = profile;
    let mut text = format!(
        "\npeak             {:.0} GFLOP/s, {:.1} GB/s ({peak_by}, measured before the run)\n\
         measured         {steps} step{} of {} on {ranks} rank{}; {:.0} GFLOP/s in the model's matmuls, mfu {:.1} %\n\n",
        peak.flops / 1e9,
        peak.bandwidth / 1e9,
        if *steps == 1 { "" } else { "s" },
        short(*step_s),
        if *ranks == 1 { "" } else { "s" },
        model_flops_per_s / 1e9,
        100.0 * model_flops_per_s / peak.flops,
    );
    text += &share_table("where the ranks' time goes", &profile.shares);
    let head = ["kernel", "shapes on a rank", "calls", "time", "share", "GFLOP/s", "GB/s", "of roofline"];
    let kernels = &profile.kernels;
    let mut rows: Vec<_> = kernels.iter().take(LISTED).map(|kernel| kernel_row(profile, kernel)).collect();
    if kernels.len() > LISTED {
        rows.push(rest_row(profile, &kernels[LISTED..]));
    }
    text + "\n" + &table(head, &rows)
}

fn kernel_row(profile: &ProfileReport, kernel: &KernelTime) -> [String; 8] {
    let [flops, bytes] = [kernel.flops, kernel.bytes].map(|what| format!("{:7.1}", what as f64 / kernel.seconds / 1e9));
    [
        kernel.op.clone(),
        shapes(&kernel.shapes),
        count(kernel.calls as f64),
        short(kernel.seconds),
        share_of(profile, kernel.seconds),
        flops,
        bytes,
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
    [name, none(), count(calls as f64), time, share_of(profile, seconds), none(), none(), none()]
}

/// Formats a share of the time of all ranks.
fn share_of(profile: &ProfileReport, seconds: f64) -> String {
    percent(seconds / (profile.step_s * profile.steps as f64 * profile.ranks as f64))
}
