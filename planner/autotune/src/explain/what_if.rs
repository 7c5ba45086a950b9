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
use ir::options::{Offload, ParallelConfig, Recompute};
use support::units::gib;

/// Least gain in the speed of each device for which fewer devices are proposed.
const WORTH_FEWER: f64 = 1.1;

/// Factor on the memory of the first what-if change.
const A_FIFTH: f64 = 1.2;

/// What-if changes of a request for time: a fifth more memory, the memory of the next larger device, twice the network
/// bandwidth, and fewer devices if their number has odd factors. Returns `None` if the deadline passes first.
pub(super) fn what_ifs(
    estimator: &Estimator,
    request: &PlanRequest,
    cluster: &Cluster,
    best: &EstimateReport,
    pool: &Pool,
    deadline: &Deadline,
) -> Option<Vec<WhatIf>> {
    if request.objective != Objective::Time {
        return Some(Vec::new());
    }
    // A given configuration may not be the best: configurations that are better without the change do not count.
    let known = std::iter::once(best).chain(pool.reports()).filter(|report| report.predicted.fits);
    let now = known.map(|report| report.predicted.step_time_s).reduce(f64::min).unwrap_or(best.predicted.step_time_s);
    let on = |(estimator, cluster, given): (Estimator, String, String)| {
        let configs = std::iter::once(&best.parallel).chain(pool.configs());
        let asked: Vec<EstimateRequest> = configs
            .flat_map(|parallel| std::iter::once(parallel.clone()).chain(anew(parallel, &request.pin)))
            .map(|parallel| EstimateRequest { cluster: cluster.clone(), ..request.under(parallel::print(&parallel)) })
            .collect();
        let then = estimate_until(&estimator, &asked, deadline).into_iter().flatten().flatten();
        let then = then.filter(|report| report.predicted.fits && holds(&report.parallel, &request.pin));
        let then = then.min_by(|a, b| a.predicted.step_time_s.total_cmp(&b.predicted.step_time_s))?;
        let step_time_s = then.predicted.step_time_s;
        Some(WhatIf { condition: given, parallel: brief(&then.parallel), step_time_s, gain: 1.0 - step_time_s / now })
    };
    let own = device_gib(cluster, best.mesh.devices);
    let more = |memory: f64, why: &str| {
        let larger = estimator.with_memory(&request.cluster, (memory * 1024.0_f64.powi(3)) as u64).ok()?;
        Some((larger, request.cluster.clone(), format!("memory {}, {why}", gib(memory))))
    };
    let next = next_larger(A_FIFTH * own).and_then(|(memory, name)| more(memory, &format!("as on {name}")));
    let (faster, given) = twice(cluster, best.mesh.devices);
    let network = (estimator.with_cluster(faster.clone()), faster.name, given);
    let fewer = fewer(best.mesh.devices, cluster).into_iter().filter_map(|devices| {
        let plan = PlanRequest { pin: without_devices(&request.pin), ..request.clone() };
        let step = best.predicted.step_time_s;
        let alike = step * best.mesh.devices as f64 / devices as f64 / WORTH_FEWER;
        let explorer = Explorer::on(estimator, &plan, (devices, &best.parallel), deadline.clone()).ok()?;
        let then = explorer.better("", alike.max(step * (1.0 + request.tie)), None)?;
        let step_time_s = then.predicted.step_time_s;
        let condition = format!("{devices} of the {} devices", best.mesh.devices);
        Some(WhatIf { condition, parallel: brief(&then.parallel), step_time_s, gain: 1.0 - step_time_s / now })
    });
    let changed_requests = [more(A_FIFTH * own, "a fifth more"), next, Some(network)];
    let what_ifs = changed_requests.into_iter().flatten().filter_map(on).chain(fewer).collect();
    // The best under a change may be no better than the best known without it.
    if deadline.is_over() { None } else { Some(what_ifs) }
}

/// Smaller numbers of devices that most degrees divide, for a number with another factor than 2 and 3: whole nodes, and a power of
/// two.
fn fewer(devices: u64, cluster: &Cluster) -> Vec<u64> {
    let odd = devices >> devices.trailing_zeros();
    if devices == 0 || odd <= 3 {
        return Vec::new();
    }
    let node = cluster.links[0].joins.min(devices).next_power_of_two();
    let nodes = devices / node;
    let mut counts = vec![1 << devices.ilog2()];
    // Three quarters of the next power of two.
    let some = nodes.checked_ilog2().map_or(0, |log| 3 * (1 << log) / 2);
    counts.extend((some <= nodes && some * node < devices).then_some(some * node).filter(|count| *count > counts[0]));
    counts
}

/// Pins without those that fix the number of devices.
fn without_devices(pins: &str) -> String {
    let kept = parallel::pins(pins).into_iter().filter(|item| !item.starts_with("dp"));
    kept.collect::<Vec<_>>().join(",")
}

/// A configuration with its recomputation chosen again, for another memory budget.
fn anew(parallel: &ParallelConfig, pin: &str) -> Option<ParallelConfig> {
    if !parallel.offload.is_none() && !parallel::has_key(pin, "offload") {
        return Some(ParallelConfig { offload: Offload::Auto, ..parallel.clone() });
    }
    let is_open =
        parallel.recompute != Recompute::None && parallel.offload.is_none() && !parallel::has_key(pin, "recompute");
    is_open.then(|| ParallelConfig { recompute: Recompute::Auto, ..parallel.clone() })
}

/// All cluster presets.
pub(super) fn presets() -> impl Iterator<Item = Cluster> {
    CLUSTERS.iter().filter_map(|preset| Cluster::parse(preset.text).ok())
}

/// Preset with the least device memory above `gib`: its memory and its name.
fn next_larger(gib: f64) -> Option<(f64, String)> {
    let more = presets().filter(|other| device_gib(other, 1) > gib);
    let next = more.min_by_key(|other| other.device.memory)?;
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
        assert!([64, 96, 24, 1].into_iter().all(|devices| of(devices).is_empty()));
        assert_eq!([of(7), of(60), of(56), of(100)], [vec![4], vec![32, 48], vec![32, 48], vec![64, 96]]);
    }

    #[test]
    fn pins_of_data_parallelism_fix_the_devices() {
        assert_eq!(without_devices("dp=4,tp<=2"), "tp<=2");
    }
}
