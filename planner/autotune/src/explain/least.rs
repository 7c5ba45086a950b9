//! Feasibility check without a search: it predicts the configurations that need least memory.

use super::brief::holds;
use super::known::Known;
use crate::error::Error;
use crate::plan::{Objective, PlanRequest};
use crate::search::divisors;
use compiler::deadline::Deadline;
use compiler::parallel::{Pins, parse_any, pinned, print};
use cost::Degree;
use estimator::fits_budget;
use estimator::{BudgetSizes, EstimateReport, EstimateRequest, Estimator, Evaluator, Undecided, estimate_until};
use ir::config_key::ConfigKey;
use ir::options::{CpKind, Offload, ParallelConfig, Recompute};
use std::collections::HashSet;

/// Tried sizes of expert groups; not used without experts.
const EXPERTS: [u64; 3] = [1, 8, 64];

/// Share of the time that is left in which one of the configurations of least memory is chosen; the rest is for changes that make it
/// faster.
const CHOICE: f64 = 0.5;

/// The deadline passed before it was known whether anything fits.
pub(super) struct Stopped;

/// Fast configuration of a request, if some configuration fits: the fastest known at the deadline, among those of least memory.
/// For given degrees, the configuration of least memory shards all states and recomputes everything. If none of these fits, the
/// remaining saved activations and the optimizer states are offloaded.
pub(super) fn fitting(
    estimator: &Estimator,
    request: &PlanRequest,
    deadline: &Deadline,
) -> Result<Option<EstimateReport>, Stopped> {
    for offload in [false, true] {
        let asked = match smallest(estimator, request, offload, deadline) {
            Ok(Some(asked)) => asked,
            Ok(None) => return Err(Stopped),
            Err(_) => return Ok(None),
        };
        let answers = estimate_until(estimator, &asked, deadline);
        let is_whole = answers.iter().all(Option::is_some);
        let fit = answers.into_iter().flatten().flatten().filter(|report| report.predicted.keeps_headroom);
        match fit.min_by(|a, b| time(a).total_cmp(&time(b))) {
            Some(fit) => return Ok(Some(fit)),
            None if !is_whole => return Err(Stopped),
            None => {}
        }
    }
    Ok(None)
}

/// Configuration that fits on some number of devices of a request, if one is found before the deadline; larger numbers first.
pub(super) fn any(estimator: &Estimator, request: &PlanRequest, deadline: &Deadline) -> Option<EstimateReport> {
    let [least, most] = request.devices();
    let round = 1 << most.ilog2();
    let mut tried: Vec<u64> = [round, most, least].into_iter().filter(|devices| *devices >= least).collect();
    tried.dedup();
    let on = |gpus| PlanRequest { gpus, max_gpus: None, ..request.clone() };
    let small = tried.into_iter().find_map(|gpus| {
        let request = on(gpus);
        let chosen = fitting(estimator, &request, &deadline.share(CHOICE));
        let small = chosen.or_else(|_| fitting(estimator, &request, deadline)).ok().flatten();
        small.map(|small| (request, small))
    });
    small.map(|(request, small)| climbed(estimator, &request, small, deadline))
}

/// Configuration reached from this one by single changes, each of which is faster. It is a local optimum, or the best known at the
/// deadline.
pub(super) fn climbed(
    estimator: &Estimator,
    request: &PlanRequest,
    from: EstimateReport,
    deadline: &Deadline,
) -> EstimateReport {
    let by_time = PlanRequest { objective: Objective::Time, top: 1, ..request.clone() };
    let mut known = Known::new(&by_time, from, Vec::new());
    known.climb(estimator, &by_time, deadline);
    known.best
}

fn time(report: &EstimateReport) -> f64 {
    report.predicted.step_time_s
}

/// For each assignment of degrees, the configuration of least memory that has the pins and is supported by the stack, if its
/// states fit. There are none with offloading if the cluster or the stack does not support it. Fails if the deadline passes.
fn smallest(
    estimator: &Estimator,
    request: &PlanRequest,
    offload: bool,
    deadline: &Deadline,
) -> Result<Option<Vec<EstimateRequest>>, Error> {
    let devices = request.gpus;
    let evaluator = Evaluator::new(estimator, request.under(String::new()), [devices; 2])?;
    let (work, platform) = (evaluator.work()?, evaluator.platform(devices));
    let supports = &evaluator.stack().supports;
    let [activations, offload_optimizer] =
        [evaluator.offloads(), evaluator.offloads_optimizer()].map(|has| offload && has);
    if offload && !(activations || offload_optimizer) {
        return Ok(Some(Vec::new()));
    }
    let pins = Pins::parse(&request.pin)?;
    let fixed = pins.fixed_text();
    let plain = ParallelConfig::default;
    let is_open =
        |zero: &u8| supports.zero(*zero) && pins.allows(ConfigKey::Zero, &ParallelConfig { zero: *zero, ..plain() });
    let zero = (0..=3).rev().find(is_open).unwrap_or(0);
    let whole = supports.recomputes("full");
    let cp_kind = [CpKind::AllGather, CpKind::Ring, CpKind::Ulysses].into_iter().find(|kind| supports.cp_kind(*kind));
    let is_open = |name: &&str| {
        supports.schedule(name)
            && pins.allows(ConfigKey::Schedule, &ParallelConfig { schedule: (*name).to_string(), ..plain() })
    };
    let schedule = ["1f1b", "gpipe"].into_iter().find(is_open).unwrap_or("1f1b").to_string();
    let fits = |parallel: &ParallelConfig| {
        let open = Undecided { zero: Some(parallel.zero), microbatches: 1, mbs: parallel.mbs };
        let least = || work.floor(parallel, open, request.global_batch, &platform).bytes;
        let budget = evaluator.memory_budget(BudgetSizes::of(parallel));
        parallel.fold().is_ok() && fits_budget(least(), Some(budget))
    };
    let job = evaluator.job_numbers();
    let (mut asked, mut known) = (Vec::new(), HashSet::new());
    for [dp, tp, pp, cp] in shares(devices) {
        if deadline.is_over() {
            return Ok(None);
        }
        for ep in EXPERTS {
            let free = ParallelConfig {
                dp,
                tp,
                pp,
                cp,
                ep,
                sp: tp > 1 && supports.sp != Some(false),
                zero: if dp * cp > 1 { zero } else { 0 },
                cp_kind: cp_kind.filter(|_| cp > 1).unwrap_or_default(),
                schedule: schedule.clone(),
                recompute: if whole { Recompute::Full(None) } else { Recompute::Auto },
                offload: if activations { Offload::All(None) } else { Offload::None },
                offload_optimizer,
                ..ParallelConfig::default()
            };
            let parallel = parse_any(&pinned(&print(&free), &fixed))?;
            let degrees = [(Degree::Tp, tp), (Degree::Pp, pp), (Degree::Cp, cp), (Degree::Ep, ep)];
            let is_forbidden = || supports.forbidden_by(&job.under(&parallel)).next().is_some();
            if !degrees.into_iter().all(|(kind, degree)| degree == 1 || supports.degree(kind)) || is_forbidden() {
                continue;
            }
            let is_asked = parallel.devices() == devices && holds(&parallel, &request.pin) && fits(&parallel);
            if is_asked && known.insert(parallel.clone()) {
                asked.push(parallel);
            }
        }
    }
    // At a deadline only the first are predicted: sequences are rarely sharded, and matrices rarely over several nodes.
    let node = platform.cluster.links.first().map_or(u64::MAX, |link| link.joins);
    asked.sort_by_key(|parallel| (parallel.tp > node, parallel.cp));
    Ok(Some(asked.iter().map(|parallel| request.of(parallel)).collect()))
}

/// Assignments of the degrees dp, tp, pp and cp to a number of devices.
fn shares(devices: u64) -> Vec<[u64; 4]> {
    let parts = |all: u64| divisors(all).into_iter().map(move |part| (part, all / part));
    let ways = parts(devices).flat_map(|(tp, rest)| parts(rest).map(move |(pp, rest)| (tp, pp, rest)));
    ways.flat_map(|(tp, pp, rest)| parts(rest).map(move |(cp, dp)| [dp, tp, pp, cp])).collect()
}
