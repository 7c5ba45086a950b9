//! What more memory or a faster network would buy.
//!
//! The answer is the best of what is known, the layouts that were found and those near the best one, and so a gain that is had
//! at least; another search is not made.

use super::brief::brief;
use super::compare::{device_gib, fits};
use super::pool::Pool;
use crate::estimate::{EstimateReport, EstimateRequest, Estimator, estimate_all};
use crate::layout;
use crate::number::gib;
use crate::plan::{Objective, PlanRequest, Wish};
use cost::{CLUSTERS, Cluster};
use ir::goal::Layout;

/// A fifth more.
const A_FIFTH: f64 = 1.2;

/// The wishes of a request for time: a fifth more memory, the next larger device's, and twice the network.
pub(super) fn wishes(
    estimator: &Estimator,
    request: &PlanRequest,
    cluster: &Cluster,
    best: &EstimateReport,
    pool: &Pool,
) -> Vec<Wish> {
    if request.objective != Objective::Time {
        return Vec::new();
    }
    let own = device_gib(cluster);
    let mut wishes = vec![memory(best, pool, A_FIFTH * own, format!("memory {}, a fifth more", gib(A_FIFTH * own)))];
    if let Some((more, name)) = next_larger(A_FIFTH * own) {
        wishes.push(memory(best, pool, more, format!("memory {}, as on {name}", gib(more))));
    }
    let (faster, link) = twice(cluster, best.mesh.devices);
    wishes.push(network(estimator, request, faster, best, pool, format!("twice the bandwidth of {link}")));
    wishes
}

/// The fastest layout under another limit of memory, which changes no time.
fn memory(best: &EstimateReport, pool: &Pool, device_gib: f64, given: String) -> Wish {
    let fit = pool.reports().filter(|report| fits(&report.predicted, device_gib));
    let then = fit.fold(best, |a, b| if b.predicted.step_time_s < a.predicted.step_time_s { b } else { a });
    wish(given, best, &then.layout, then.predicted.step_time_s)
}

/// The fastest layout on another cluster.
fn network(
    estimator: &Estimator,
    request: &PlanRequest,
    cluster: Cluster,
    best: &EstimateReport,
    pool: &Pool,
    given: String,
) -> Wish {
    let on = |report: &EstimateReport| {
        let layout = layout::print(&report.layout);
        EstimateRequest { cluster: cluster.name.clone(), ..request.under(layout) }
    };
    let asked: Vec<EstimateRequest> =
        std::iter::once(best).chain(pool.reports().filter(|report| report.predicted.fits)).map(on).collect();
    let then = estimate_all(&estimator.with_cluster(cluster.clone()), &asked, &|_| ()).into_iter().flatten();
    let then = then.reduce(|a, b| if b.predicted.step_time_s < a.predicted.step_time_s { b } else { a });
    let then = then.as_ref().unwrap_or(best);
    wish(given, best, &then.layout, then.predicted.step_time_s)
}

fn wish(given: String, best: &EstimateReport, layout: &Layout, step_time_s: f64) -> Wish {
    Wish { given, layout: brief(layout), step_time_s, gain: 1.0 - step_time_s / best.predicted.step_time_s }
}

/// The clusters that are known.
pub(super) fn presets() -> impl Iterator<Item = Cluster> {
    CLUSTERS.iter().filter_map(|preset| Cluster::parse(preset.text).ok())
}

/// The memory of the device of a preset with the least that is more than so many GiB, and its name.
fn next_larger(gib: f64) -> Option<(f64, String)> {
    let more = presets().filter(|other| device_gib(other) > gib);
    let next = more.min_by_key(|other| other.device.memory)?;
    Some((device_gib(&next), next.device.name.clone()))
}

/// The cluster with twice the bandwidth between nodes, or between devices where these are all of a node; and what is faster.
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
    (faster, cluster.links[from].name.clone())
}
