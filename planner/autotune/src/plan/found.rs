//! Results of the search.

use super::large_microbatch::LargeMicrobatches;
use super::oracle::Costs;
use super::report::{Basis, Covers, Search, StageCover};
use super::request::{Objective, PlanRequest};
use super::space::{Subspace, none_serves, space};
use crate::error::Error;
use crate::search::{self, Counted, Outcome, Ranked, Task};
use compiler::cancel::CancelToken;
use compiler::deadline::Deadline;
use compiler::parallel::{self, Pins};
use estimator::{BudgetSizes, EstimateReport, EstimateRequest, Estimator, Evaluator, ModelWork, StepCost, check_sizes};
use ir::config_key::ConfigKey;
use ir::limits;
use support::parallel::each;
use support::stopwatch::Stopwatch;
use tracing::{debug, debug_span};

/// Result of the searches of a request.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Found {
    /// Configurations that fit, the best first. If it is empty and the search is complete, nothing fits.
    pub best: Vec<EstimateReport>,
    /// If none was found that fits: the configuration of least memory among those evaluated.
    pub closest: Option<EstimateReport>,
    /// `true` if no configuration needs less than 98 % of its memory.
    pub closest_is_least: bool,
    /// Result of the search.
    pub search: Search,
    /// If the search is not complete: lower bound on the objective of all configurations, in seconds or GiB, and its basis.
    pub bound: Option<(f64, Basis)>,
    /// Deadline of the entire answer.
    pub deadline: Deadline,
}

/// Share of the time for the search; the rest is for explanations.
const SEARCH: f64 = 0.8;

/// Relative difference in memory below which a smaller configuration need not be found if nothing fits. Predictions of memory
/// have a median error of 2 to 4 % (`docs/accuracy.md`).
const CLOSE: f64 = 0.02;

/// Share of the search time in which configurations are counted.
const COUNT: f64 = 0.05;

/// Bytes of a GiB.
const GIB: f64 = (1u64 << 30) as f64;

/// Finds the best configurations of a request, and calls `progress` with intermediate results.
///
/// # Errors
/// A name is not known, a size is out of its range, pins contradict each other, or no configuration uses that many devices.
pub fn find(estimator: &Estimator, request: &PlanRequest, progress: &Progress<'_>) -> Result<Found, Error> {
    found_by(estimator, request, Deadline::asked(request.deadline)?, progress)
}

/// As [`find`], and stops with [`Cancelled`](compiler::error::Error::Cancelled) as soon as `cancel` is cancelled.
///
/// # Errors
/// As [`find`]; and the token is cancelled.
pub fn find_until_cancelled(
    estimator: &Estimator,
    request: &PlanRequest,
    cancel: &CancelToken,
    progress: &Progress<'_>,
) -> Result<Found, Error> {
    let deadline = Deadline::asked(request.deadline)?.or_cancelled(cancel);
    let found = found_by(estimator, request, deadline, progress);
    cancel.check()?;
    found
}

fn found_by(
    estimator: &Estimator,
    request: &PlanRequest,
    deadline: Deadline,
    progress: &Progress<'_>,
) -> Result<Found, Error> {
    check(request)?;
    let _span = debug_span!("plan_search", model = request.model, gpus = request.gpus).entered();
    let began = Stopwatch::start();
    let until = deadline.share(SEARCH);
    let evaluator = Evaluator::new(estimator, request.under(String::new()), request.devices())?;
    evaluator.check_devices()?;
    let work = evaluator.work()?;
    let scope = Scope { estimator, request, evaluator: &evaluator, work, began, deadline, until, progress };
    // Sizes with odd factors are searched only if nothing else fits, then offloading, which takes host memory and bandwidth.
    let usual = Subspace { offload: false, offload_optimizer: false, odd: false };
    if let Ok(found) = scope.search(usual, false)
        && (!found.best.is_empty() || !found.search.complete)
    {
        return Ok(found);
    }
    let all = Subspace { odd: true, ..usual };
    let is_open = |key: ConfigKey| !parallel::has_key(&request.pin, key);
    let offload = evaluator.offloads() && is_open(ConfigKey::Offload);
    let [_, most] = request.devices();
    let hosts_hold_states = work.hosts_hold_states(most, &evaluator.platform(most));
    let offload_optimizer = evaluator.offloads_optimizer() && is_open(ConfigKey::OffloadOptimizer) && hosts_hold_states;
    let found = scope.search(all, !(offload || offload_optimizer))?;
    if !(offload || offload_optimizer) || !found.best.is_empty() || !found.search.complete {
        return Ok(found);
    }
    scope.offloading(Subspace { offload, offload_optimizer, odd: true })
}

/// A callback for the progress of a search, called from its threads after each round. [`Search::candidates`] counts up to
/// [`Search::space`]; most configurations are pruned, so that a search ends long before.
pub type Progress<'a> = dyn Fn(&Search) + Sync + 'a;

/// State that the searches of one request share.
struct Scope<'a> {
    estimator: &'a Estimator,
    request: &'a PlanRequest,
    evaluator: &'a Evaluator,
    work: ModelWork,
    began: Stopwatch,
    deadline: Deadline,
    until: Deadline,
    progress: &'a Progress<'a>,
}

impl Scope<'_> {
    /// Best configurations that offload activations or optimizer states, whichever takes less; both, if neither alone is enough.
    fn offloading(&self, both: Subspace) -> Result<Found, Error> {
        let activations = Subspace { offload_optimizer: false, ..both };
        let states = Subspace { offload: false, ..both };
        let kinds = if both.offload && both.offload_optimizer { vec![activations, states] } else { Vec::new() };
        let alone: Vec<Found> = kinds.into_iter().filter_map(|kind| self.search(kind, false).ok()).collect();
        let (is_complete, is_proved) =
            (alone.iter().all(|found| found.search.complete), alone.iter().all(|found| found.search.proved_optimal));
        let of = |best: &EstimateReport| self.request.objective.value(&best.predicted);
        let value = |found: &Found| found.best.first().map_or(f64::INFINITY, of);
        let fits = alone.into_iter().filter(|found| !found.best.is_empty());
        if let Some(mut least) = fits.min_by(|a, b| value(a).total_cmp(&value(b))) {
            least.search.complete &= is_complete;
            least.search.proved_optimal &= is_proved;
            return Ok(least);
        }
        // If no host can hold what is offloaded, the configuration of least memory keeps more on the device.
        let none = Subspace { offload: false, ..activations };
        let least = self.search(both, true).or_else(|_| self.search(activations, true));
        least.or_else(|_| self.search(none, true))
    }

    /// Best configurations of a part of the space, or the configuration of least memory.
    fn search(&self, part: Subspace, asks_least: bool) -> Result<Found, Error> {
        let Scope { estimator, request, evaluator, work, began, ref deadline, ref until, progress } = *self;
        let space = space(request, evaluator, until.clone(), part)?;
        let roots = space.roots();
        let counting = until.share(COUNT);
        let counted = search::count(&space, &roots, &|| counting.is_over());
        if counted == (Counted { configs: 0, is_all: true }) {
            return Err(none_serves(request, against_pins(estimator, request)));
        }
        let large = LargeMicrobatches::new(evaluator, &space);
        // Only the bounds of experts have sampled factors.
        let is_sampled = space.experts.is_some() && !request.exhaustive;
        let basis = if is_sampled { Basis::SampledBounds } else { Basis::CostModel };
        let so_far = |candidates: u64, complete: bool, covers: Covers| Search {
            space: counted.configs,
            has_more: !counted.is_all,
            candidates,
            pruned: counted.configs.saturating_sub(candidates),
            seconds: began.elapsed().as_secs_f64(),
            complete,
            proved_optimal: complete && covers.stages != StageCover::Listed,
            covers,
            optimal_under: complete.then_some(basis),
            gap: None,
            deterministic: request.deadline.is_none(),
            pin: request.pin.clone(),
            objective: request.objective,
            tie: request.tie,
            tokens: None,
            days: None,
            device_hours: None,
            price: None,
            price_per_million: None,
            price_unit: None,
            fastest: None,
            beyond: None,
            chances: Vec::new(),
        };
        let memory = evaluator.memory_budget(BudgetSizes::default());
        let run = |wanted: usize, memory: Option<f64>, by_memory: bool, before: u64| {
            let mut tell = |it: search::Progress| progress(&so_far(before + it.candidates, false, Covers::default()));
            let exhaustive = request.exhaustive && memory.is_some();
            let (below, gap) = (f64::INFINITY, if memory.is_none() { CLOSE } else { 0.0 });
            let task = Task { wanted, memory, by_memory, exhaustive, below, gap, around: None, progress: &mut tell };
            let oracle = Costs::new(evaluator, work, &space, &large, memory.is_some());
            search::search(&space, &roots, &oracle, task)
        };
        let by_memory = request.objective == Objective::Memory;
        let Outcome { best, candidates, finished, others, open } = run(request.top, Some(memory), by_memory, 0);
        let value = |best: &Ranked| if by_memory { best.cost.bytes } else { best.cost.seconds };
        let covers = Covers::of(best.first().map(value), others, space.pin.has(ConfigKey::Stages));
        debug!(?part, space = counted.configs, candidates, finished, fit = best.len(), "configurations searched");
        let report = |ranked: &Ranked| {
            let gpus = Some(ranked.parallel.devices());
            estimator.estimate(&EstimateRequest { gpus, ..request.under(ranked.cost.text.clone()) })
        };
        let oracle = Costs::new(evaluator, work, &space, &large, false);
        let StepCost { seconds, bytes } = oracle.of_all();
        let (floor, unit) = if by_memory { (bytes, GIB) } else { (seconds, 1.0) };
        let mut found = Found {
            search: so_far(candidates, finished, covers),
            bound: (!finished).then(|| (open.unwrap_or(0.0).min(others).max(floor) / unit, basis)),
            deadline: deadline.clone(),
            ..Found::default()
        };
        if best.is_empty() && finished && !asks_least {
            return Ok(found);
        }
        if best.is_empty() {
            let least = run(1, None, true, candidates);
            if least.finished && least.best.is_empty() {
                return Err(none_can_be(estimator, request));
            }
            found.closest = least.best.first().map(report).transpose()?;
            found.closest_is_least = least.finished;
            found.search = so_far(candidates + least.candidates, finished, covers);
            return Ok(found);
        }
        found.best = each(&best, report).into_iter().collect::<Result<_, _>>()?;
        found.search.take(&found.best[0], request);
        found.search.seconds = began.elapsed().as_secs_f64();
        Ok(found)
    }
}

/// Text of the error of a configuration of the pins alone, by the first values of sets; `None` if it has none, or there are no pins.
fn against_pins(estimator: &Estimator, request: &PlanRequest) -> Option<String> {
    let pins = Pins::parse(&request.pin).ok().filter(|_| !request.pin.is_empty())?;
    let first = pins.each_value().into_iter().next().unwrap_or_else(|| pins.fixed_text());
    refusal(estimator, request, first).map(|why| why.to_string())
}

/// Error of an estimate of a configuration on the least number of devices; `None` if it has an estimate.
fn refusal(estimator: &Estimator, request: &PlanRequest, parallel: String) -> Option<estimator::Error> {
    let asked = EstimateRequest { gpus: Some(request.gpus), ..request.under(parallel) };
    estimator.estimate(&asked).err()
}

/// Error of a request without any configuration: that of the simplest configuration, if it has one.
fn none_can_be(estimator: &Estimator, request: &PlanRequest) -> Error {
    let pins = Pins::parse(&request.pin).map(|pins| pins.fixed_text()).unwrap_or_default();
    refusal(estimator, request, pins).map_or_else(|| none_serves(request, None), Error::from)
}

/// Upper limit on the number of tokens.
const MOST_TOKENS: f64 = 1e20;

/// Upper limit on the price of an hour.
const MOST_PRICE: f64 = 1e9;

/// Checks the ranges of the request's numbers.
fn check(request: &PlanRequest) -> Result<(), Error> {
    check_sizes(&[
        ("gpus", request.gpus, limits::DEVICES),
        ("seq", request.seq, limits::ELEMENTS),
        ("global-batch", request.global_batch, limits::SEQUENCES),
    ])?;
    if let Some(most) = request.max_gpus {
        check_sizes(&[("max-gpus", most, limits::DEVICES)])?;
        if most < request.gpus {
            return Err(Error::MaxGpus { max_gpus: most, gpus: request.gpus });
        }
    }
    if request.top == 0 {
        return Err(Error::NoTop);
    }
    if !(0.0..1.0).contains(&request.tie) {
        return Err(Error::Tie { tie: request.tie });
    }
    if let Some(price) = request.price.as_ref().filter(|price| !(0.0..=MOST_PRICE).contains(&price.amount)) {
        return Err(Error::Price { price: price.amount });
    }
    match request.tokens.filter(|tokens| !(*tokens > 0.0 && *tokens <= MOST_TOKENS)) {
        Some(tokens) => Err(Error::Tokens { tokens }),
        None => Ok(()),
    }
}
