//! What-if changes: the gain from more memory or a faster network, and the loss from fewer devices.
//!
//! For memory and networks the answer is the best of the known configurations, those found and those near the best one, so it is a
//! lower bound on the gain. Their recomputation is chosen again, but no new search is made. Fewer devices are searched.

use super::brief::{brief, holds};
use super::compare::device_gib;
use super::pool::Pool;
use crate::plan::{Explorer, Objective, PlanRequest, WhatIf};
use compiler::deadline::Deadline;
use compiler::parallel;
use cost::{CLUSTERS, Cluster};
use estimator::{EstimateReport, EstimateRequest, Estimator, estimate_until};
use ir::config_key::ConfigKey;
use ir::options::{Offload, ParallelConfig, Recompute};
use support::units::gib;

/// Least gain in the speed of each device for which fewer devices are proposed.
const WORTH_FEWER: f64 = 1.1;

/// Factor on the memory of the first what-if change.
const A_FIFTH: f64 = 1.2;

/// Factor on a memory below which a larger one counts as the same: predictions of memory err by 2 to 4 % in the median
/// (`docs/accuracy.md`).
const AS_LARGE: f64 = 1.05;

/// What-if changes of a plan.
pub(super) struct Changes<'a> {
    pub(super) estimator: &'a Estimator,
    pub(super) request: &'a PlanRequest,
    pub(super) cluster: &'a Cluster,
    pub(super) best: &'a EstimateReport,
    pub(super) pool: &'a Pool,
    pub(super) deadline: &'a Deadline,
}

/// A what-if change with its best configuration in full.
pub(super) struct Changed {
    pub(super) what_if: WhatIf,
    pub(super) parallel: ParallelConfig,
}

/// Changed hardware, and the change as text.
struct Hardware {
    estimator: Estimator,
    cluster: String,
    condition: String,
}

impl Changes<'_> {
    /// What-if changes of a request for time: a fifth more memory, the memory of the next larger device of the vendor, twice the
    /// network bandwidth, and fewer devices if few degrees divide their number. Returns `None` if the deadline passes first.
    pub(super) fn all(&self) -> Option<Vec<Changed>> {
        if self.request.objective != Objective::Time {
            return Some(Vec::new());
        }
        let own = device_gib(self.cluster, self.best.mesh.devices);
        let larger = next_larger(A_FIFTH * own, self.cluster.device.vendor.as_deref());
        let hardware = [
            self.with_memory(A_FIFTH * own, "a fifth more"),
            larger.and_then(|(memory, name)| self.with_memory(memory, &format!("as on {name}"))),
            Some(self.with_network()),
        ];
        let changed = hardware.into_iter().flatten().filter_map(|hardware| self.on(hardware));
        let fewer = fewer(self.best.mesh.devices, self.cluster).into_iter().filter_map(|devices| self.with(devices));
        let all = changed.chain(fewer).collect();
        if self.deadline.is_over() { None } else { Some(all) }
    }

    /// Seconds of the best known step without a change. A given configuration may not be the best: configurations that are better
    /// without the change do not count.
    fn now(&self) -> f64 {
        let fit = self.pool.reports().filter(|report| report.predicted.keeps_headroom);
        fit.map(|report| report.predicted.step_time_s).fold(self.best.predicted.step_time_s, f64::min)
    }

    /// The best of the known configurations on other hardware, with its recomputation chosen again.
    fn on(&self, Hardware { estimator, cluster, condition }: Hardware) -> Option<Changed> {
        let pin = &self.request.pin;
        let known = std::iter::once(&self.best.parallel).chain(self.pool.configs());
        let configs = known.flat_map(|parallel| std::iter::once(parallel.clone()).chain(anew(parallel, pin)));
        let asked: Vec<EstimateRequest> = configs
            .map(|parallel| EstimateRequest { cluster: cluster.clone(), ..self.request.of(&parallel) })
            .collect();
        let then = estimate_until(&estimator, &asked, self.deadline).into_iter().flatten().flatten();
        let then = then.filter(|report| report.predicted.keeps_headroom && holds(&report.parallel, pin));
        let then = then.min_by(|a, b| a.predicted.step_time_s.total_cmp(&b.predicted.step_time_s))?;
        Some(self.told(condition, then))
    }

    /// The best configuration on fewer devices, if each of them is faster by enough.
    fn with(&self, devices: u64) -> Option<Changed> {
        let plan = PlanRequest { pin: without_devices(&self.request.pin), ..self.request.clone() };
        let step = self.best.predicted.step_time_s;
        let alike = step * self.best.mesh.devices as f64 / devices as f64 / WORTH_FEWER;
        let like = (devices, &self.best.parallel);
        let explorer = Explorer::on(self.estimator, &plan, like, self.deadline.clone()).ok()?;
        let then = explorer.better("", alike.max(step * (1.0 + plan.tie)), None)?;
        let all = self.best.mesh.devices;
        Some(self.told(format!("{devices} of the {all} devices, {} idle", all - devices), then))
    }

    fn told(&self, condition: String, then: EstimateReport) -> Changed {
        let step_time_s = then.predicted.step_time_s;
        let idle = self.best.mesh.devices - then.mesh.devices;
        // The best under a change may be no better than the best known without it.
        let gain = 1.0 - step_time_s / self.now();
        Changed {
            what_if: WhatIf { condition, parallel: brief(&then.parallel), step_time_s, gain, idle },
            parallel: then.parallel,
        }
    }

    fn with_memory(&self, memory: f64, why: &str) -> Option<Hardware> {
        let cluster = self.request.cluster.clone();
        let estimator = self.estimator.with_memory(&cluster, (memory * 1024.0_f64.powi(3)) as u64).ok()?;
        Some(Hardware { estimator, cluster, condition: format!("memory {}, {why}", gib(memory)) })
    }

    fn with_network(&self) -> Hardware {
        let (faster, condition) = twice(self.cluster, self.best.mesh.devices);
        let cluster = faster.name.clone();
        Hardware { estimator: self.estimator.with_cluster(faster), cluster, condition }
    }
}

/// Smaller numbers of devices that more degrees divide, ascending. A number has some if it has another factor than 2 and 3, or a node
/// in part. They are a power of two, three quarters of the next one, and the most whole nodes without a factor above
/// [`LARGEST_FACTOR`].
fn fewer(devices: u64, cluster: &Cluster) -> Vec<u64> {
    let node = cluster.links[0].joins.min(devices).next_power_of_two();
    let is_in_whole_nodes = devices < node || devices.is_multiple_of(node);
    if devices == 0 || (is_in_whole_nodes && devices >> devices.trailing_zeros() <= 3) {
        return Vec::new();
    }
    let nodes = devices / node;
    let three_quarters = nodes.checked_ilog2().map_or(0, |log| 3 * (1 << log) / 2);
    let most = (1..=nodes).rev().find(|&count| count * node < devices && has_small_factors(count));
    let mut counts = vec![1 << devices.ilog2(), three_quarters * node];
    counts.extend(most.map(|count| count * node));
    counts.retain(|count| *count < devices && *count >= 1 << devices.ilog2());
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Largest factor of a number of nodes that pipelines and data parallelism use well.
const LARGEST_FACTOR: u64 = 5;

/// Returns whether a number has no prime factor above [`LARGEST_FACTOR`].
fn has_small_factors(number: u64) -> bool {
    let rest = (2..=LARGEST_FACTOR).fold(number, |mut rest, factor| {
        while rest.is_multiple_of(factor) {
            rest /= factor;
        }
        rest
    });
    rest == 1
}

/// Pins without those that fix the number of devices.
fn without_devices(pins: &str) -> String {
    let kept = parallel::pins(pins).into_iter().filter(|item| !item.starts_with("dp"));
    kept.collect::<Vec<_>>().join(",")
}

/// A configuration with its recomputation chosen again, for another memory budget.
fn anew(parallel: &ParallelConfig, pin: &str) -> Option<ParallelConfig> {
    if !parallel.offload.is_none() && !parallel::has_key(pin, ConfigKey::Offload) {
        return Some(ParallelConfig { offload: Offload::Auto, ..parallel.clone() });
    }
    let is_open = parallel.recompute != Recompute::None
        && parallel.offload.is_none()
        && !parallel::has_key(pin, ConfigKey::Recompute);
    is_open.then(|| ParallelConfig { recompute: Recompute::Auto, ..parallel.clone() })
}

/// All cluster presets.
pub(super) fn presets() -> impl Iterator<Item = Cluster> {
    CLUSTERS.iter().filter_map(|preset| Cluster::parse(preset.text).ok())
}

/// Preset of a vendor with the least device memory that is clearly above `gib`: its memory and its name. Devices of other vendors are
/// no choice where the software and the figures are those of one.
fn next_larger(gib: f64, vendor: Option<&str>) -> Option<(f64, String)> {
    let is_larger = |other: &Cluster| {
        device_gib(other, 1) > AS_LARGE * gib && vendor.is_some() && other.device.vendor.as_deref() == vendor
    };
    let next = presets().filter(is_larger).min_by_key(|other| other.device.memory)?;
    Some((device_gib(&next, 1), next.device.name.clone()))
}

/// The cluster with twice the bandwidth between nodes, or between devices within one node, and the name of that link.
fn twice(cluster: &Cluster, devices: u64) -> (Cluster, String) {
    let mut faster = cluster.clone();
    faster.name = format!("{}, network x 2", cluster.name);
    let inside = cluster.links.len() == 1 || devices <= cluster.links[0].joins;
    let from = usize::from(!inside);
    for link in &mut faster.links[from..] {
        link.bandwidth *= 2.0;
        link.pair = link.pair.map(|pair| 2.0 * pair);
        link.switch = link.switch.map(|switch| 2.0 * switch);
    }
    (faster, format!("twice the bandwidth of {}", cluster.links[from].name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_numbers_of_devices_have_smaller_ones_that_divide() {
        let cluster = Cluster::find("h100").unwrap();
        let of = |devices| fewer(devices, &cluster);
        assert!([64, 96, 24, 1, 6].into_iter().all(|devices| of(devices).is_empty()));
        assert_eq!([of(7), of(60), of(56), of(100)], [vec![4], vec![32, 48], vec![32, 48], vec![64, 96]]);
        // Fifteen nodes, and the nodes that a number has in part beside whole ones.
        assert_eq!([of(124), of(12), of(250)], [vec![64, 96, 120], vec![8], vec![128, 192, 240]]);
    }

    /// H100 SXM 96 GB is a fifth more than 80 GB, and a TPU is no choice for a plan on GPUs.
    #[test]
    fn the_next_larger_device_is_of_the_vendor_and_clearly_larger() {
        let next = |name: &str| {
            let cluster = Cluster::find(name).unwrap();
            next_larger(A_FIFTH * device_gib(&cluster, 1), cluster.device.vendor.as_deref())
        };
        for name in ["h100", "a100", "mi300x", "tpu-v5p", "b300", "cpu"] {
            let own = Cluster::find(name).unwrap();
            let Some((memory, device)) = next(name) else { continue };
            let other = presets().find(|other| other.device.name == device).unwrap();
            assert_eq!(other.device.vendor, own.device.vendor, "{name}: {device}");
            assert!(memory > AS_LARGE * A_FIFTH * device_gib(&own, 1), "{name}: {device}");
        }
        assert!(next("h100").is_some_and(|(_, device)| device.contains("H200")), "{:?}", next("h100"));
        assert_eq!(next("cpu"), None);
    }

    #[test]
    fn pins_of_data_parallelism_fix_the_devices() {
        assert_eq!(without_devices("dp=4,tp<=2"), "tp<=2");
    }
}
