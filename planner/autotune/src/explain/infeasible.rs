//! Infeasible requests: the constraints that conflict, and the changes that would make some configuration fit.

use super::brief::brief;
use super::compare::device_gib;
use super::least::{Stopped, climbed, fitting};
use crate::error::Error;
use crate::plan::SCHEMA;
use crate::plan::{Conflict, Infeasible, PlanRequest, Relaxation, Search};
use compiler::deadline::Deadline;
use compiler::parallel::pins;
use cost::Cluster;
use estimator::{EstimateReport, Estimator, Memory};
use ir::limits;
use std::sync::Arc;
use support::units::{gib, share};

/// Number of doublings of the devices that are tried: up to 4096 times the number.
const DOUBLINGS: u32 = 12;

/// Number of steps between half of the sufficient devices and all of them.
const STEPS: u64 = 16;

/// Constraint of a request.
#[derive(Clone, PartialEq, Debug)]
enum Constraint {
    Pin(String),
    Sequence,
    Gpus,
    Memory,
}

/// Configuration of least memory among those evaluated.
pub(super) struct Closest {
    /// The configuration, if there is one.
    pub(super) report: Option<EstimateReport>,
    /// `true` if no configuration needs less memory.
    pub(super) is_least: bool,
}

/// Conflict and relaxations of a request. For each weaker request the configurations of least memory are predicted, without a
/// search. Without proof that nothing fits, the conflict is empty.
///
/// # Errors
/// The cluster is not known.
pub(super) fn explain(
    estimator: &Estimator,
    request: &PlanRequest,
    closest: Closest,
    search: Search,
    deadline: &Deadline,
) -> Result<Infeasible, Error> {
    let cluster = estimator.cluster(&request.cluster)?;
    let trials = Trials { estimator, request, cluster, deadline };
    let is_known = search.complete;
    let conflict = if is_known { trials.conflict().unwrap_or_default() } else { Vec::new() };
    let mut relaxations = Vec::new();
    if is_known {
        // Relaxations found before the deadline are valid without the others.
        let _ = trials.relaxations(&closest, &mut relaxations);
    }
    Ok(Infeasible {
        schema: SCHEMA.to_string(),
        tool_version: env!("CARGO_PKG_VERSION").to_string(),
        status: if is_known { "infeasible" } else { "unknown" }.to_string(),
        inputs: request.under(request.pin.clone()),
        conflict: conflict.iter().map(|constraint| trials.told(constraint, &closest)).collect(),
        relaxations,
        closest_is_least: closest.is_least,
        closest: closest.report.map(Box::new),
        search,
    })
}

/// Trials of requests with fewer constraints.
struct Trials<'a> {
    estimator: &'a Estimator,
    request: &'a PlanRequest,
    cluster: Arc<Cluster>,
    deadline: &'a Deadline,
}

/// A request for which some configuration fits, with this configuration.
type Fit = (PlanRequest, EstimateReport);

impl Trials<'_> {
    /// Minimal set of conflicting constraints (deletion filter): each is dropped in turn, and stays dropped if still nothing
    /// fits. The memory is always in the set, since everything valid fits without it.
    fn conflict(&self) -> Result<Vec<Constraint>, Stopped> {
        let pins = pins(&self.request.pin).into_iter().map(Constraint::Pin);
        let (mut kept, mut dropped): (Vec<Constraint>, Vec<Constraint>) = (Vec::new(), Vec::new());
        for constraint in pins.chain([Constraint::Sequence, Constraint::Gpus]) {
            dropped.push(constraint.clone());
            if self.first(self.without(&dropped))?.is_some() {
                dropped.pop();
                kept.push(constraint);
            }
        }
        kept.push(Constraint::Memory);
        Ok(kept)
    }

    /// Requests without these constraints: several with growing device counts, if the number of devices is among them.
    fn without(&self, dropped: &[Constraint]) -> Vec<PlanRequest> {
        let mut request = self.request.clone();
        let kept = pins(&request.pin).into_iter().filter(|pin| !dropped.contains(&Constraint::Pin(pin.clone())));
        request.pin = kept.collect::<Vec<_>>().join(",");
        if dropped.contains(&Constraint::Sequence) {
            request.seq = 1;
        }
        if dropped.contains(&Constraint::Gpus) { doubled(&request).collect() } else { vec![request] }
    }

    /// Changes that make some configuration fit, cheapest first: fewer pins, more devices, no headroom, unsupported options, larger
    /// devices, and a shorter sequence, which is another job.
    fn relaxations(&self, closest: &Closest, ways: &mut Vec<Relaxation>) -> Result<(), Stopped> {
        let pins = pins(&self.request.pin);
        let without = |kept: Vec<&String>| {
            let pin = kept.into_iter().cloned().collect::<Vec<_>>().join(",");
            PlanRequest { pin, ..self.request.clone() }
        };
        for pin in &pins {
            let one = without(pins.iter().filter(|other| *other != pin).collect());
            ways.extend(self.way([one], |_| format!("without --pin {pin}"))?);
        }
        let unpinned = without(Vec::new());
        if pins.len() > 1 && ways.is_empty() {
            ways.extend(self.way([unpinned.clone()], |_| format!("without --pin {}", self.request.pin))?);
        }
        let fewest = self.fewest(self.request)?;
        ways.extend(fewest.map(|found| self.told_way(found, |request| format!("--gpus {}", request.gpus))));
        if ways.is_empty() && !pins.is_empty() {
            let told = |request: &PlanRequest| format!("--gpus {} without --pin {}", request.gpus, self.request.pin);
            ways.extend(self.fewest(&unpinned)?.map(|found| self.told_way(found, told)));
        }
        let PlanRequest { memory_margin, beyond_stack, .. } = *self.request;
        if memory_margin != Some(0.0) {
            ways.extend(closest.report.as_ref().and_then(filled));
        }
        if !beyond_stack {
            let wide = PlanRequest { beyond_stack: true, ..self.request.clone() };
            ways.extend(self.way([wide], |_| "--beyond-stack".to_string())?);
        }
        ways.extend(self.way(self.eased(self.larger())?, |request| format!("--cluster {}", request.cluster))?);
        let halves = (1..=self.request.seq.ilog2()).map(|half| self.request.seq >> half);
        let shorter = halves.map(|seq| PlanRequest { seq, ..self.request.clone() });
        ways.extend(self.way(self.eased(shorter.collect())?, |request| format!("--seq {}", request.seq))?);
        Ok(())
    }

    /// Relaxation by the first of these requests for which some configuration fits.
    fn way(
        &self,
        requests: impl IntoIterator<Item = PlanRequest>,
        told: impl Fn(&PlanRequest) -> String,
    ) -> Result<Option<Relaxation>, Stopped> {
        Ok(self.first(requests)?.map(|found| self.told_way(found, told)))
    }

    /// Relaxation by a request for which some configuration fits, with a fast configuration.
    fn told_way(&self, found: Fit, told: impl Fn(&PlanRequest) -> String) -> Relaxation {
        let (request, small) = found;
        let report = climbed(self.estimator, &request, small, self.deadline);
        let step_time_s = report.predicted.step_time_s;
        Relaxation { change: told(&request), parallel: brief(&report.parallel), step_time_s }
    }

    /// The request on the fewest devices on which some configuration fits: by doubling the number, then by at most sixteen
    /// steps below a sufficient number.
    fn fewest(&self, request: &PlanRequest) -> Result<Option<Fit>, Stopped> {
        let Some((enough, fit)) = self.first(doubled(request))? else { return Ok(None) };
        let (few, many) = (enough.gpus / 2, enough.gpus);
        let step = (many - few).div_ceil(STEPS);
        let fewer = (1..STEPS).map(|steps| few + steps * step).take_while(|gpus| *gpus < many);
        Ok(self.first(fewer.map(|gpus| on(request, gpus)))?.or(Some((enough, fit))))
    }

    /// Requests each easier than the one before; empty if nothing fits for the last.
    fn eased(&self, requests: Vec<PlanRequest>) -> Result<Vec<PlanRequest>, Stopped> {
        let Some(last) = requests.last() else { return Ok(requests) };
        Ok(if fitting(self.estimator, last, self.deadline)?.is_some() { requests } else { Vec::new() })
    }

    /// The request on presets with more device memory, the least memory first.
    fn larger(&self) -> Vec<PlanRequest> {
        let mut larger: Vec<Cluster> =
            super::what_if::presets().filter(|other| other.device.memory > self.cluster.device.memory).collect();
        larger.sort_by_key(|cluster| cluster.device.memory);
        larger.into_iter().map(|cluster| PlanRequest { cluster: cluster.name, ..self.request.clone() }).collect()
    }

    /// First of these requests for which some configuration fits.
    fn first(&self, requests: impl IntoIterator<Item = PlanRequest>) -> Result<Option<Fit>, Stopped> {
        for request in requests {
            if let Some(report) = fitting(self.estimator, &request, self.deadline)? {
                return Ok(Some((request, report)));
            }
        }
        Ok(None)
    }

    fn told(&self, constraint: &Constraint, closest: &Closest) -> Conflict {
        let PlanRequest { gpus, seq, .. } = *self.request;
        let own = device_gib(&self.cluster, self.request.gpus);
        let (constraint, message) = match constraint {
            Constraint::Pin(pin) => (format!("--pin {pin}"), "the request is feasible without this pin".to_string()),
            Constraint::Sequence => {
                (format!("--seq {seq}"), "activation memory grows with the sequence length".to_string())
            }
            Constraint::Gpus => (format!("--gpus {gpus}"), self.devices(closest.report.as_ref())),
            Constraint::Memory => {
                let free = match self.request.memory_margin {
                    Some(0.0) => String::new(),
                    Some(margin) => format!(", with {} left free (--memory-margin)", share(margin)),
                    None => self.likely(closest),
                };
                (format!("memory {}", gib(own)), least(closest, own) + &free)
            }
        };
        Conflict { constraint, message }
    }

    /// Text on the chance to fit of the configuration of least memory, where it would fill a device at best.
    fn likely(&self, closest: &Closest) -> String {
        let asked = share(1.0 - self.request.headroom / 100.0);
        match closest.report.as_ref().map(|report| report.predicted.chance_to_fit) {
            Some(chance) => format!("; its chance to fit is {}, and {asked} is asked (--headroom)", share(chance)),
            None => String::new(),
        }
    }

    /// Text comparing the total device memory with the model states.
    fn devices(&self, closest: Option<&EstimateReport>) -> String {
        let all = device_gib(&self.cluster, self.request.gpus) * self.request.gpus as f64;
        let states = closest.map(|report| {
            let bytes = report.predicted.parameters as f64 * report.predicted.bytes_per_parameter;
            let states = gib(bytes / 1024.0_f64.powi(3));
            format!("; parameters, gradients and optimizer states alone need {states}, without any replication")
        });
        format!("the devices have {} in total{}", gib(all), states.unwrap_or_default())
    }
}

/// Relaxation that fills devices by the prediction: the configuration of least memory, with its chance to fit.
fn filled(roomiest: &EstimateReport) -> Option<Relaxation> {
    let predicted = &roomiest.predicted;
    let Memory { capacity, host_capacity, .. } = predicted.memory_gib;
    let fits = predicted.fullest().device <= capacity && host_capacity.is_none_or(|host| predicted.offloaded() <= host);
    fits.then(|| Relaxation {
        change: format!("--memory-margin 0 (chance to fit {})", share(predicted.chance_to_fit)),
        parallel: brief(&roomiest.parallel),
        step_time_s: predicted.step_time_s,
    })
}

/// Text on the memory of the configuration of least memory.
fn least(closest: &Closest, own: f64) -> String {
    match &closest.report {
        Some(report) => {
            let memory = report.predicted.fullest().device;
            let least =
                if closest.is_least { "the smallest (to within 2 %)" } else { "the smallest of those evaluated" };
            format!("{}, {least}, needs {} on a device of {}", brief(&report.parallel), gib(memory), gib(own))
        }
        None => "the smallest configuration is not known".to_string(),
    }
}

/// The request with growing numbers of devices.
fn doubled(request: &PlanRequest) -> impl Iterator<Item = PlanRequest> {
    let more = (1..=DOUBLINGS).filter_map(|doublings| request.gpus.checked_mul(1 << doublings));
    more.take_while(|gpus| *gpus <= limits::DEVICES).map(|gpus| on(request, gpus))
}

/// The request on another number of devices.
fn on(request: &PlanRequest, gpus: u64) -> PlanRequest {
    PlanRequest { gpus, max_gpus: request.max_gpus.map(|most| most.max(gpus)), ..request.clone() }
}
