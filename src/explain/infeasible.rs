//! Nothing fits: which constraints clash, and what would make something fit.

use super::brief::brief;
use super::compare::device_gib;
use super::least::{climbed, fitting};
use crate::error::Error;
use crate::estimate::{EstimateReport, Estimator, SCHEMA};
use crate::layout::pins;
use crate::number::gib;
use crate::plan::{Clash, Infeasible, PlanRequest, Search, WayOut};
use cost::Cluster;
use std::sync::Arc;

/// Doublings of the devices that are tried: 4096 times as many.
const DOUBLINGS: u32 = 12;

/// Steps from half as many devices to as many as are enough.
const STEPS: u64 = 16;

/// Something that was asked for.
#[derive(Clone, PartialEq, Debug)]
enum Constraint {
    Pin(String),
    Sequence,
    Gpus,
    Memory,
}

/// The clash and the ways out: of each weaker request the layouts that need least are predicted, no search is made.
///
/// # Errors
/// The cluster is not known.
pub(super) fn explain(
    estimator: &Estimator,
    request: &PlanRequest,
    closest: Option<EstimateReport>,
    search: Search,
) -> Result<Infeasible, Error> {
    let cluster = estimator.cluster(&request.cluster)?;
    let trials = Trials { estimator, request, cluster };
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

/// Requests with fewer constraints.
struct Trials<'a> {
    estimator: &'a Estimator,
    request: &'a PlanRequest,
    cluster: Arc<Cluster>,
}

impl Trials<'_> {
    /// A smallest set of constraints that clash: each is dropped in turn, and stays dropped where still nothing fits without
    /// it. The memory is one of them in any case: without it all that is legal fits.
    fn clash(&self) -> Vec<Constraint> {
        let pins = pins(&self.request.pin).into_iter().map(Constraint::Pin);
        let (mut kept, mut dropped): (Vec<Constraint>, Vec<Constraint>) = (Vec::new(), Vec::new());
        for constraint in pins.chain([Constraint::Sequence, Constraint::Gpus]) {
            dropped.push(constraint.clone());
            if self.first(self.without(&dropped)).is_some() {
                dropped.pop();
                kept.push(constraint);
            }
        }
        kept.push(Constraint::Memory);
        kept
    }

    /// The request without these constraints: with more and more devices, where their number is one of them.
    fn without(&self, dropped: &[Constraint]) -> Vec<PlanRequest> {
        let mut request = self.request.clone();
        let kept = pins(&request.pin).into_iter().filter(|pin| !dropped.contains(&Constraint::Pin(pin.clone())));
        request.pin = kept.collect::<Vec<_>>().join(",");
        if dropped.contains(&Constraint::Sequence) {
            request.seq = 1;
        }
        if dropped.contains(&Constraint::Gpus) { doubled(&request).collect() } else { vec![request] }
    }

    /// What would make something fit: pins that are dropped cost nothing and come first, then more devices, larger ones, and
    /// last a shorter sequence, which is another job.
    fn ways_out(&self) -> Vec<WayOut> {
        let pins = pins(&self.request.pin);
        let without = |kept: Vec<&String>| {
            let pin = kept.into_iter().cloned().collect::<Vec<_>>().join(",");
            PlanRequest { pin, ..self.request.clone() }
        };
        let mut ways = Vec::new();
        for pin in &pins {
            let one = without(pins.iter().filter(|other| *other != pin).collect());
            ways.extend(self.way([one], |_| format!("without --pin {pin}")));
        }
        let unpinned = without(Vec::new());
        if pins.len() > 1 && ways.is_empty() {
            ways.extend(self.way([unpinned.clone()], |_| format!("without --pin {}", self.request.pin)));
        }
        ways.extend(
            self.fewest(self.request).map(|found| self.told_way(found, |request| format!("--gpus {}", request.gpus))),
        );
        if ways.is_empty() && !pins.is_empty() {
            let told = |request: &PlanRequest| format!("--gpus {} without --pin {}", request.gpus, self.request.pin);
            ways.extend(self.fewest(&unpinned).map(|found| self.told_way(found, told)));
        }
        ways.extend(self.way(self.eased(self.larger()), |request| format!("--cluster {}", request.cluster)));
        let halves = (1..=self.request.seq.ilog2()).map(|half| self.request.seq >> half);
        let shorter = halves.map(|seq| PlanRequest { seq, ..self.request.clone() });
        ways.extend(self.way(self.eased(shorter.collect()), |request| format!("--seq {}", request.seq)));
        ways
    }

    /// The first of these requests for which something fits, with a fast layout of it.
    fn way(
        &self,
        requests: impl IntoIterator<Item = PlanRequest>,
        told: impl Fn(&PlanRequest) -> String,
    ) -> Option<WayOut> {
        self.first(requests).map(|found| self.told_way(found, told))
    }

    /// A request for which something fits, with a fast layout of it.
    fn told_way(&self, found: (PlanRequest, EstimateReport), told: impl Fn(&PlanRequest) -> String) -> WayOut {
        let (request, small) = found;
        let report = climbed(self.estimator, &request, small);
        let step_time_s = report.predicted.step_time_s;
        WayOut { change: told(&request), layout: brief(&report.layout), step_time_s }
    }

    /// The request on the fewest devices on which something fits: twice as many and again, then fewer than those that are
    /// enough, in sixteen steps at most.
    fn fewest(&self, request: &PlanRequest) -> Option<(PlanRequest, EstimateReport)> {
        let (enough, fit) = self.first(doubled(request))?;
        let (few, many) = (enough.gpus / 2, enough.gpus);
        let step = (many - few).div_ceil(STEPS);
        let fewer = (1..STEPS).map(|steps| few + steps * step).take_while(|gpus| *gpus < many);
        self.first(fewer.map(|gpus| on(request, gpus))).or(Some((enough, fit)))
    }

    /// Requests each of which is easier than the one before; none of them where the last is still too hard.
    fn eased(&self, requests: Vec<PlanRequest>) -> Vec<PlanRequest> {
        let last = requests.last().and_then(|last| fitting(self.estimator, last));
        if last.is_some() { requests } else { Vec::new() }
    }

    /// The request on presets whose devices have more memory, the least first.
    fn larger(&self) -> Vec<PlanRequest> {
        let mut larger: Vec<Cluster> =
            super::wishes::presets().filter(|other| other.device.memory > self.cluster.device.memory).collect();
        larger.sort_by_key(|cluster| cluster.device.memory);
        larger.into_iter().map(|cluster| PlanRequest { cluster: cluster.name, ..self.request.clone() }).collect()
    }

    /// The first of these requests for which something fits.
    fn first(&self, requests: impl IntoIterator<Item = PlanRequest>) -> Option<(PlanRequest, EstimateReport)> {
        let mut requests = requests.into_iter();
        requests.find_map(|request| fitting(self.estimator, &request).map(|report| (request, report)))
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
            let memory = report.predicted.fullest().device;
            format!("{}, which needs least, holds {} on a device of {}", brief(&report.layout), gib(memory), gib(own))
        }
        None => "no layout is below it".to_string(),
    }
}

/// The request with more and more devices.
fn doubled(request: &PlanRequest) -> impl Iterator<Item = PlanRequest> {
    (1..=DOUBLINGS).filter_map(|doublings| Some(on(request, request.gpus.checked_mul(1 << doublings)?)))
}

/// The request on so many devices.
fn on(request: &PlanRequest, gpus: u64) -> PlanRequest {
    PlanRequest { gpus, max_gpus: request.max_gpus.map(|most| most.max(gpus)), ..request.clone() }
}
