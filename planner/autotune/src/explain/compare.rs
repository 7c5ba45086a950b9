//! Comparison of two predictions of one job, as text.

use cost::Cluster;
use estimator::{EstimateReport, Memory, Predicted, StageMemory, part_name};
use support::units::{gib, share, time};

/// A part that differs, with its growth; negative if it shrank.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Change {
    pub(super) what: &'static str,
    pub(super) by: f64,
}

/// Differences of the parts of the step in seconds, largest first. The parts are those of the busiest rank of each.
pub(super) fn seconds(from: &Predicted, to: &Predicted) -> Vec<Change> {
    let pairs = from.time_s.by_name().into_iter().zip(to.time_s.by_name());
    let mut changes: Vec<Change> =
        pairs.map(|((part, from), (_, to))| Change { what: part_name(part), by: to - from }).collect();
    changes.sort_by(|a, b| b.by.abs().total_cmp(&a.by.abs()));
    changes
}

/// Differences of the parts of the worst rank's memory in GiB, largest first.
pub(super) fn memory(from: &Predicted, to: &Predicted) -> Vec<Change> {
    let pairs = parts(from.fullest()).into_iter().zip(parts(to.fullest()));
    let mut changes: Vec<Change> = pairs.map(|((what, from), (_, to))| Change { what, by: to - from }).collect();
    changes.sort_by(|a, b| b.by.abs().total_cmp(&a.by.abs()));
    changes
}

/// Parts of a device's memory by name, in GiB.
pub(super) fn parts(memory: StageMemory) -> [(&'static str, f64); 6] {
    [
        ("parameters", memory.parameters),
        ("gradients", memory.gradients),
        ("optimizer states", memory.optimizer),
        ("activations", memory.activations),
        ("logits", memory.logits),
        ("buffers", memory.buffers),
    ]
}

/// Memory of each of a number of devices of the cluster, in GiB.
pub(super) fn device_gib(cluster: &Cluster, devices: u64) -> f64 {
    cluster.memory_each(devices) as f64 / 1024.0_f64.powi(3)
}

/// Text for a configuration that does not fit: `would not fit: needs 93.1 GiB of 79.1 GiB per device (..)`.
pub(super) fn misfit(best: &Predicted, other: &Predicted) -> String {
    let (held, offloaded) = (other.fullest().device, other.offloaded());
    let Memory { usable, host_capacity, .. } = other.memory_gib;
    match host_capacity.filter(|capacity| held <= usable && offloaded > *capacity) {
        Some(capacity) => {
            format!(
                "would not fit: {} offloaded per device, {} of host memory available",
                gib(offloaded),
                gib(capacity)
            )
        }
        None => {
            let grown = memory(best, other).into_iter().find(|change| change.by > 0.0);
            let grown = grown.map_or_else(String::new, |change| format!(" ({} +{})", change.what, gib(change.by)));
            format!("would not fit: needs {} of {} per device{grown}", gib(held), gib(usable))
        }
    }
}

/// Text comparing the other configuration's time: `6.1 % slower: waiting in the pipeline +1.20 s, though recomputation -0.30 s`.
pub(super) fn pace(best: &Predicted, other: &Predicted) -> String {
    let slower = other.step_time_s / best.step_time_s - 1.0;
    let sign = slower.signum();
    let text = |change: &Change| format!("{} {}", change.what, signed(change.by, time));
    let changes = seconds(best, other);
    let with = |grows: bool| changes.iter().find(|change| (change.by * sign > 0.0) == grows && change.by != 0.0);
    let pace = if slower.abs() < ALIKE { "equally fast".to_string() } else { slowdown(slower) };
    let reason =
        with(true).filter(|_| slower.abs() >= ALIKE).map_or_else(String::new, |change| format!(": {}", text(change)));
    // A change in the other direction is noted if it is a large part of the difference.
    let difference = (other.step_time_s - best.step_time_s).abs();
    let though = with(false).filter(|change| slower.abs() >= ALIKE && change.by.abs() > difference / 4.0);
    let though = though.map_or_else(String::new, |change| format!(", though {}", text(change)));
    format!("{pace}{reason}{though}")
}

/// A difference with its sign: `+1.20 s`.
pub(crate) fn signed(by: f64, unit: fn(f64) -> String) -> String {
    format!("{}{}", if by < 0.0 { '-' } else { '+' }, unit(by.abs()))
}

/// Relative time difference below which two configurations count as equally fast, since they print alike.
pub(super) const ALIKE: f64 = 5e-4;

fn slowdown(slower: f64) -> String {
    format!("{} {}", share(slower.abs()), if slower > 0.0 { "slower" } else { "faster" })
}

/// Order of preference: configurations that fit first, by time; then the others, by memory.
pub(super) fn better<'a>(a: &'a EstimateReport, b: &'a EstimateReport) -> &'a EstimateReport {
    let (x, y) = (&a.predicted, &b.predicted);
    let first = match (x.keeps_headroom, y.keeps_headroom) {
        (true, true) => x.step_time_s <= y.step_time_s,
        (false, false) => x.fullest().device <= y.fullest().device,
        (fits, _) => fits,
    };
    if first { a } else { b }
}
