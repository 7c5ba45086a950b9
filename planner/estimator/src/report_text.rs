//! An estimate as text.

use super::report::{EstimateReport, LIKELY, Memory, Recomputed, StageMemory};
use super::stack_support::Beyond;
use compiler::parallel;
use cost::Interval;
use std::fmt;
use support::table::table;
use support::units::{bytes, count, percent, plural, share, time, with_unit};

/// The prediction of a configuration as tables, in 100 columns or more; ends in a newline.
impl fmt::Display for EstimateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self))
    }
}

fn text(report: &EstimateReport) -> String {
    let EstimateReport { inputs, predicted, parallel, .. } = report;
    let Interval { low, high } = predicted.interval_s;
    let (low, high) = (time(low), time(high));
    let text = format!(
        "model     {}, {} parameters, {:.0} bytes each\n\
         cluster   {}, {}, stack {}, {}\n\
         batch     {}\n\
         config    {}\n\
         step      {} (80 % interval {low} to {high}), {} tokens/s per device\n\
         mfu       {} of {}, hfu {}, bubble {} on average\n\n",
        inputs.model,
        count(predicted.parameters as f64),
        predicted.bytes_per_parameter,
        inputs.cluster,
        plural(report.mesh.devices, "device"),
        inputs.stack,
        inputs.precision,
        inputs.batch(),
        parallel::print(parallel),
        time(predicted.step_time_s),
        count(predicted.tokens_per_s_per_gpu),
        percent(predicted.mfu).trim(),
        with_unit(predicted.peak_flops, "FLOP/s"),
        percent(predicted.hfu).trim(),
        percent(predicted.bubble).trim(),
    );
    text + &assumed(report)
        + &noted(report)
        + &beyond(report)
        + &dropped(predicted.dropped)
        + &times(report)
        + "\n"
        + &recomputed(report)
        + &memory(report)
}

/// Lines on figures that are those of other hardware.
fn assumed(report: &EstimateReport) -> String {
    let lines: String = report.assumed.iter().map(|line| format!("assumed   {line}\n")).collect();
    if lines.is_empty() { lines } else { lines + "\n" }
}

/// Lines of the notes.
fn noted(report: &EstimateReport) -> String {
    let lines: String = report.notes.iter().map(|line| format!("note      {line}\n")).collect();
    if lines.is_empty() { lines } else { lines + "\n" }
}

impl EstimateReport {
    /// Texts on the items that the stack or the devices do not support, and the notes.
    pub fn warnings(&self) -> Vec<String> {
        self.beyond_stack.iter().map(|beyond| unsupported(self, beyond)).chain(self.notes.clone()).collect()
    }
}

/// Text on an item that the stack or the devices do not support.
fn unsupported(report: &EstimateReport, Beyond { item, .. }: &Beyond) -> String {
    let says = if item.contains(' ') { "needs" } else { "does not support" };
    // A precision is the devices' own.
    let subject = if item.starts_with("precision=") { &report.inputs.cluster } else { &report.inputs.stack };
    format!("{subject} {says} {item}")
}

/// Lines on what the stack does not support, unless `--beyond-stack` is given.
fn beyond(report: &EstimateReport) -> String {
    if report.beyond_stack.is_empty() {
        return String::new();
    }
    let line = |beyond: &Beyond| {
        let source = &beyond.source;
        let source = if source.is_empty() { String::new() } else { format!("\n          source: {source}") };
        format!("warning   {}{source}\n", unsupported(report, beyond))
    };
    let lines: String = report.beyond_stack.iter().map(line).collect();
    format!("{lines}          the figures assume that the configuration runs (--beyond-stack hides this warning)\n\n")
}

/// Table of the recomputed values; empty if there are none.
fn recomputed(report: &EstimateReport) -> String {
    if report.recomputed.is_empty() {
        return String::new();
    }
    let row = |recomputed: &Recomputed| {
        let saved =
            if recomputed.bytes_saved > 0.0 { bytes(recomputed.bytes_saved as u64) } else { "(shared)".to_string() };
        [recomputed.value.clone(), recomputed.op.clone(), recomputed.layer.clone(), saved, time(recomputed.time_s)]
    };
    let rows: Vec<_> = report.recomputed.iter().map(row).collect();
    table(["RECOMPUTED", "OP", "LAYER", "SAVED", "COST"], &rows) + "\n"
}

/// Line on the expected share of dropped tokens.
fn dropped(expected: Option<f64>) -> String {
    let drop = match expected {
        None => return String::new(),
        Some(0.0) => "0 %".to_string(),
        Some(few) if few < 5e-4 => "less than 0.1 % (uniform routing)".to_string(),
        Some(expected) => format!("{} (uniform routing)", share(expected)),
    };
    format!("expected token drop  {drop}\n\n")
}

/// Table of the parts of the step, largest first.
fn times(report: &EstimateReport) -> String {
    let predicted = &report.predicted;
    let mut shares = predicted.time_s.by_name().map(|(name, seconds)| (part_name(name), seconds)).to_vec();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let rows: Vec<_> = shares
        .into_iter()
        .filter(|(_, seconds)| *seconds > 0.0)
        .map(|(name, seconds)| [name.to_string(), time(seconds), percent(seconds / predicted.step_time_s)])
        .collect();
    table(["STEP OF THE BUSIEST RANK", "TIME", "SHARE"], &rows)
}

/// Table of the memory of each pipeline rank, in GiB.
fn memory(report: &EstimateReport) -> String {
    let memory = &report.predicted.memory_gib;
    let gib = |gib: f64| format!("{gib:.2}");
    let workspace = memory.overhead.workspace;
    let row = |(rank, stage): (usize, &StageMemory)| {
        [
            rank.to_string(),
            gib(stage.parameters),
            gib(stage.gradients),
            gib(stage.optimizer),
            gib(stage.activations),
            gib(stage.logits),
            gib(stage.buffers - workspace),
            gib(stage.device - stage.allocated + workspace),
            gib(stage.device),
        ]
    };
    let rows: Vec<_> = memory.per_stage.iter().enumerate().map(row).collect();
    let head =
        ["RANK", "PARAMETERS", "GRADIENTS", "OPTIMIZER", "ACTIVATIONS", "LOGITS", "BUFFERS", "OVERHEAD", "DEVICE"];
    table(head, &rows) + &format!("\nin GiB; {}\n{}{}", verdict(report), overhead(memory), offloaded(report))
}

/// Line on the memory of the worst rank that holds no tensors; empty if there is none.
fn overhead(memory: &Memory) -> String {
    let parts = memory.overhead.by_name().into_iter().filter(|(_, gib)| *gib >= 0.005);
    let parts: Vec<String> = parts.map(|(name, gib)| format!("{name} {gib:.2}")).collect();
    let Some(worst) = memory.per_stage.get(memory.worst_rank).filter(|_| !parts.is_empty()) else {
        return String::new();
    };
    let StageMemory { allocated, reserved, .. } = worst;
    format!(
        "rank {} allocates {allocated:.2} and reserves {reserved:.2}; overhead: {}\n",
        memory.worst_rank,
        parts.join(", ")
    )
}

/// Lines on whether the peak-memory device fits, and on the chance that it does.
fn verdict(report: &EstimateReport) -> String {
    let predicted = &report.predicted;
    let (memory, held) = (&predicted.memory_gib, predicted.fullest().device);
    let (capacity, usable) = (memory.capacity, memory.usable);
    let chance = share(predicted.chance_to_fit);
    let fits = if held <= usable {
        "it fits".to_string()
    } else if predicted.chance_to_fit >= LIKELY {
        format!("it fits with a chance of {chance} only")
    } else {
        "it does not fit".to_string()
    };
    let of = match report.inputs.memory_margin {
        Some(0.0) => String::new(),
        Some(margin) => format!(", {usable:.2} usable with {} left free (--memory-margin)", share(margin)),
        None => {
            let asked = share(1.0 - report.inputs.headroom / 100.0);
            format!(", {usable:.2} usable with a chance of {asked} to fit (--headroom)")
        }
    };
    let Interval { low, high } = predicted.memory_interval_gib;
    format!(
        "device capacity {capacity:.2}{of}: {fits}\nmost on a device {held:.2} (80 % interval {low:.2} to {high:.2}), chance to fit {chance}"
    )
}

/// Line on offloaded activations; empty if nothing is offloaded.
fn offloaded(report: &EstimateReport) -> String {
    let (held, capacity) = (report.predicted.offloaded(), report.predicted.memory_gib.host_capacity);
    let limit = match capacity {
        _ if held == 0.0 => return String::new(),
        Some(capacity) if held <= capacity => format!("of {capacity:.2} available per device: it fits"),
        Some(capacity) => format!("of {capacity:.2} available per device: it does not fit"),
        None => "capacity unknown: the cluster file has no host.memory".to_string(),
    };
    format!("offloaded to host memory, on the worst device: {held:.2}, {limit}\n")
}

/// Name of a part of a step, by its field in a report.
pub fn part_name(part: &str) -> &'static str {
    match part {
        "gemm" => "matmuls",
        "attention" => "attention",
        "memory_bound" => "memory-bound kernels",
        "recompute" => "recomputation",
        "tp" => "tensor-parallel communication",
        "cp" => "context-parallel communication",
        "ep" => "expert-parallel communication",
        "dp" => "data-parallel communication",
        "p2p" => "pipeline communication",
        "bubble" => "waiting in the pipeline",
        "optimizer" => "optimizer",
        "launch" => "kernel launches",
        "host" => "copies to and from host memory",
        "cores" => "waiting for a core or GPU",
        _ => "fixed overhead and stragglers",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_said_of_models_with_experts() {
        let lines = [None, Some(0.0), Some(3e-5), Some(0.0247)].map(dropped);
        assert_eq!(lines[0], "");
        assert_eq!(lines[1], "expected token drop  0 %\n\n");
        assert!(lines[2].contains("less than 0.1 %") && lines[3].contains("2.5 %"), "{lines:?}");
    }
}
