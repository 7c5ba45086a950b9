//! Nothing fits: which constraints clash, and what would make something fit.

use super::Find;
use super::brief::brief;
use super::compare::{device_gib, worst};
use crate::error::Error;
use crate::estimate::{EstimateReport, Estimator, SCHEMA};
use crate::layout::pins;
use crate::number::gib;
use crate::plan::{Clash, Infeasible, PlanRequest, Search, WayOut};
use cost::Cluster;
use std::sync::Arc;

/// Doublings of the devices that are tried: 4096 times as many.
const DOUBLINGS: u32 = 12;

/// A memory that nothing fills: a PiB.
const UNLIMITED: u64 = 1 << 50;

/// Something that was asked for.
#[derive(Clone, PartialEq, Debug)]
enum Constraint {
    Pin(String),
    Sequence,
    Gpus,
    Memory,
}

/// The clash and the ways out. The search is asked again some ten to thirty times, each time under fewer constraints.
///
/// # Errors
/// The cluster is not known.
pub(super) fn explain(
    estimator: &Estimator,
    request: &PlanRequest,
    closest: Option<EstimateReport>,
    search: Search,
    find: &Find<'_>,
) -> Result<Infeasible, Error> {
    let cluster = estimator.cluster(&request.cluster)?;
    let trials = Trials { estimator, request, cluster, find };
    let clash = trials.clash().iter().map(|constraint| trials.told(constraint, closest.as_ref())).collect();
    Ok(Infeasible {
        schema: SCHEMA.to_string(),
        tool_version: env!("CARGO_PKG_VERSION").to_string(),
        status: "infeasible".to_string(),
        inputs: request.under(request.pin.clone()),
        clash,
        ways_out: trials.ways_out(),
        closest: closest.map(Box::new),
        search,
    })
}

/// Searches under fewer constraints.
struct Trials<'a> {
    estimator: &'a Estimator,
    request: &'a PlanRequest,
    cluster: Arc<Cluster>,
    find: &'a Find<'a>,
}

impl Trials<'_> {
    /// A smallest set of constraints that clash: each is dropped in turn, and stays dropped where still nothing fits without
    /// it. The last to be tried is the memory, without which all that is legal fits.
    fn clash(&self) -> Vec<Constraint> {
        let pins = pins(&self.request.pin).into_iter().map(Constraint::Pin);
        let all = pins.chain([Constraint::Sequence, Constraint::Gpus, Constraint::Memory]);
        let (mut kept, mut dropped): (Vec<Constraint>, Vec<Constraint>) = (Vec::new(), Vec::new());
        for constraint in all {
            dropped.push(constraint.clone());
            if self.without(&dropped).is_some() {
                dropped.pop();
                kept.push(constraint);
            }
        }
        kept
    }

    /// The best layout without these constraints.
    fn without(&self, dropped: &[Constraint]) -> Option<EstimateReport> {
        let mut request = PlanRequest { top: 1, ..self.request.clone() };
        let is_dropped = |constraint: &Constraint| dropped.contains(constraint);
        let kept = pins(&request.pin).into_iter().filter(|pin| !is_dropped(&Constraint::Pin(pin.clone())));
        request.pin = kept.collect::<Vec<_>>().join(",");
        if is_dropped(&Constraint::Sequence) {
            request.seq = 1;
        }
        let unlimited = is_dropped(&Constraint::Memory).then(|| {
            let mut cluster = (*self.cluster).clone();
            cluster.device.memory = UNLIMITED;
            cluster.name = format!("{}, unlimited memory", cluster.name);
            cluster
        });
        if let Some(cluster) = &unlimited {
            request.cluster = cluster.name.clone();
        }
        let estimator = unlimited.map(|cluster| self.estimator.with_cluster(cluster));
        let estimator = estimator.as_ref().unwrap_or(self.estimator);
        match is_dropped(&Constraint::Gpus) {
            true => self.first(estimator, doubled(&request)).map(|(_, report)| report),
            false => self.best(estimator, &request),
        }
    }

    /// What would make something fit: pins that are dropped cost nothing and come first, then more devices, larger ones, and
    /// last a shorter sequence, which is another job.
    fn ways_out(&self) -> Vec<WayOut> {
        let mut ways = Vec::new();
        let mut way = |change: String, report: EstimateReport| {
            let step_time_s = report.predicted.step_time_s;
            ways.push(WayOut { change, layout: brief(&report.layout), step_time_s });
        };
        let pins = pins(&self.request.pin);
        for pin in &pins {
            if let Some(report) = self.without(&[Constraint::Pin(pin.clone())]) {
                way(format!("without --pin {pin}"), report);
            }
        }
        let more = self.first(self.estimator, doubled(self.request));
        let gpus = more.as_ref().map_or(u64::MAX, |(request, _)| request.gpus);
        let unpinned = PlanRequest { pin: String::new(), ..self.request.clone() };
        if !pins.is_empty() {
            let all = pins.join(",");
            if pins.len() > 1
                && let Some(report) = self.best(self.estimator, &unpinned)
            {
                way(format!("without --pin {all}"), report);
            } else if let Some((request, report)) =
                self.first(self.estimator, doubled(&unpinned)).filter(|(request, _)| request.gpus < gpus)
            {
                way(format!("--gpus {} without --pin {all}", request.gpus), report);
            }
        }
        if let Some((request, report)) = more {
            way(format!("--gpus {}", request.gpus), report);
        }
        if let Some((request, report)) = self.first(self.estimator, self.larger()) {
            way(format!("--cluster {}", request.cluster), report);
        }
        let halves = (1..self.request.seq.ilog2()).map(|half| self.request.seq >> half);
        let shorter = halves.map(|seq| PlanRequest { seq, ..self.request.clone() });
        if let Some((request, report)) = self.first(self.estimator, shorter) {
            way(format!("--seq {}", request.seq), report);
        }
        ways
    }

    /// The request on presets whose devices have more memory, the least first.
    fn larger(&self) -> impl Iterator<Item = PlanRequest> {
        let mut larger: Vec<Cluster> =
            super::wishes::presets().filter(|other| other.device.memory > self.cluster.device.memory).collect();
        larger.sort_by_key(|cluster| cluster.device.memory);
        larger.into_iter().map(|cluster| PlanRequest { cluster: cluster.name, ..self.request.clone() })
    }

    /// The first of these requests for which something fits.
    fn first(
        &self,
        estimator: &Estimator,
        requests: impl IntoIterator<Item = PlanRequest>,
    ) -> Option<(PlanRequest, EstimateReport)> {
        let mut requests = requests.into_iter();
        requests.find_map(|request| self.best(estimator, &request).map(|report| (request, report)))
    }

    /// The best layout of a request; none where nothing fits, or nothing is legal.
    fn best(&self, estimator: &Estimator, request: &PlanRequest) -> Option<EstimateReport> {
        let found = (self.find)(estimator, &PlanRequest { top: 1, ..request.clone() }).ok()?;
        found.best.into_iter().next()
    }

    fn told(&self, constraint: &Constraint, closest: Option<&EstimateReport>) -> Clash {
        let PlanRequest { gpus, seq, .. } = *self.request;
        let own = device_gib(&self.cluster);
        let (constraint, says) = match constraint {
            Constraint::Pin(pin) => (format!("--pin {pin}"), "without it something fits".to_string()),
            Constraint::Sequence => (format!("--seq {seq}"), "activations grow with it".to_string()),
            Constraint::Gpus => (format!("--gpus {gpus}"), self.devices(closest)),
            Constraint::Memory => (format!("memory {}", gib(own)), least(closest, own)),
        };
        Clash { constraint, says }
    }

    /// What the devices hold together, against what lives from step to step.
    fn devices(&self, closest: Option<&EstimateReport>) -> String {
        let all = device_gib(&self.cluster) * self.request.gpus as f64;
        let states = closest.map(|report| {
            let bytes = report.predicted.parameters as f64 * report.predicted.bytes_per_parameter;
            let states = gib(bytes / 1024.0_f64.powi(3));
            format!("; parameters, gradients and optimizer states alone are {states}, if each is held once")
        });
        format!("together they hold {}{}", gib(all), states.unwrap_or_default())
    }
}

/// What the layout that needs least holds.
fn least(closest: Option<&EstimateReport>, own: f64) -> String {
    match closest {
        Some(report) => {
            let memory = worst(&report.predicted).device;
            format!("{}, which needs least, holds {} on a device of {}", brief(&report.layout), gib(memory), gib(own))
        }
        None => "no layout is below it".to_string(),
    }
}

/// The request with more and more devices.
fn doubled(request: &PlanRequest) -> impl Iterator<Item = PlanRequest> {
    let more = |doublings: u32| {
        let gpus = request.gpus.checked_mul(1 << doublings)?;
        let max_gpus = request.max_gpus.map(|most| most.max(gpus));
        Some(PlanRequest { gpus, max_gpus, ..request.clone() })
    };
    (1..=DOUBLINGS).filter_map(more)
}
