//! Whether anything fits, without a search: the layouts that need least are predicted.

use super::brief::holds;
use super::pool::Pool;
use crate::error::Error;
use crate::estimate::{EstimateReport, EstimateRequest, Estimator, estimate_all};
use crate::layout::{parse_any, pinned, print};
use crate::plan::PlanRequest;
use ir::goal::{Layout, Recompute};
use planner::search::divisors;

/// Sizes of groups of experts that are tried; a model without experts has none.
const EXPERTS: [u64; 3] = [1, 8, 64];

/// A fast layout of a request, if anything fits: of those that need least the fastest, and from there by single changes, each
/// of which is faster. Under each way to share out the devices that layout needs least which cuts all states, computes all
/// again and keeps what is left with the host.
pub(super) fn fitting(estimator: &Estimator, request: &PlanRequest) -> Option<EstimateReport> {
    let asked = smallest(estimator, request).ok()?;
    let fit = estimate_all(estimator, &asked, &|_| ()).into_iter().flatten().filter(|report| report.predicted.fits);
    fit.min_by(|a, b| time(a).total_cmp(&time(b)))
}

/// A layout reached from this one by single changes, each of which is faster; the last has no faster one near.
pub(super) fn climbed(estimator: &Estimator, request: &PlanRequest, from: EstimateReport) -> EstimateReport {
    let pool = Pool::around(estimator, request, &from, &[]);
    let faster = pool.reports().filter(|report| report.predicted.fits && time(report) < time(&from));
    match faster.min_by(|a, b| time(a).total_cmp(&time(b))) {
        Some(next) => climbed(estimator, request, next.clone()),
        None => from,
    }
}

fn time(report: &EstimateReport) -> f64 {
    report.predicted.step_time_s
}

/// For each way to share out the devices, the layout that needs least, with what is pinned.
fn smallest(estimator: &Estimator, request: &PlanRequest) -> Result<Vec<EstimateRequest>, Error> {
    let offload = estimator.cluster(&request.cluster)?.device.host_bandwidth > 0.0;
    let devices = request.gpus;
    let mut all: Vec<Layout> = Vec::new();
    for [dp, tp, pp, cp] in shares(devices) {
        for ep in EXPERTS {
            let free = Layout {
                dp,
                tp,
                pp,
                cp,
                ep,
                sp: tp > 1,
                zero: if dp * cp > 1 { 3 } else { 0 },
                recompute: Recompute::Full(None),
                offload,
                ..Layout::default()
            };
            let layout = parse_any(&pinned(&print(&free), &request.pin))?;
            if layout.devices() == devices && holds(&layout, &request.pin) && !all.contains(&layout) {
                all.push(layout);
            }
        }
    }
    Ok(all.iter().map(|layout| request.under(print(layout))).collect())
}

/// The ways to share out devices among dp, tp, pp and cp.
fn shares(devices: u64) -> Vec<[u64; 4]> {
    let parts = |all: u64| divisors(all).into_iter().map(move |part| (part, all / part));
    let ways = parts(devices).flat_map(|(tp, rest)| parts(rest).map(move |(pp, rest)| (tp, pp, rest)));
    ways.flat_map(|(tp, pp, rest)| parts(rest).map(move |(cp, dp)| [dp, tp, pp, cp])).collect()
}
