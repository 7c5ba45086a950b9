//! What the search gives.

use super::large::Large;
use super::oracle::Costs;
use super::report::Search;
use super::request::{Objective, PlanRequest};
use super::space::{none_serves, space};
use crate::error::Error;
use crate::estimate::{Desk, EstimateReport, Estimator};
use ir::catalogue::Code;
use planner::search::{self, Outcome, Progress, Ranked, Task};
use std::time::Instant;

/// What was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// Layouts that fit, the best first; empty: nothing fits.
    pub best: Vec<EstimateReport>,
    /// Where nothing fits: the layout that needs least memory.
    pub closest: Option<EstimateReport>,
    /// How it was found.
    pub search: Search,
}

/// The best layouts of a request; `progress` is told of what is known so far.
///
/// # Errors
/// A name is not known, pins contradict each other, or no layout serves so many devices.
pub fn find(estimator: &Estimator, request: &PlanRequest, progress: &(dyn Fn(&Search) + Sync)) -> Result<Found, Error> {
    check(request)?;
    let began = Instant::now();
    let devices: Vec<u64> = (request.gpus..=request.max_gpus.unwrap_or(request.gpus)).collect();
    let desk = Desk::new(estimator, request.under(String::new()), &devices)?;
    let work = desk.work()?;
    let space = space(request, &desk, devices)?;
    let axes = space.axes();
    let counted = search::count(&space, &axes);
    if counted == 0 {
        return Err(none_serves(request));
    }
    let oracle = Costs { desk: &desk, work, space: &space, large: Large::new(&desk, &space) };
    let is_late = || request.deadline.is_some_and(|deadline| began.elapsed().as_secs_f64() >= deadline);
    let so_far = |candidates: u64, proved_optimal: bool| Search {
        space: counted,
        candidates,
        pruned: counted.saturating_sub(candidates),
        seconds: began.elapsed().as_secs_f64(),
        proved_optimal,
        deterministic: request.deadline.is_none(),
        pin: request.pin.clone(),
        objective: request.objective,
        days: None,
    };
    let memory = desk.machine(request.gpus).cluster.device.memory as f64;
    let run = |wanted: usize, memory: Option<f64>, by_memory: bool, before: u64| {
        let mut tell = |it: Progress| progress(&so_far(before + it.candidates, false));
        let exhaustive = request.exhaustive && memory.is_some();
        let task = Task { wanted, memory, by_memory, exhaustive, stop: &is_late, progress: &mut tell };
        search::search(&space, &axes, &oracle, task)
    };
    let Outcome { best, candidates, finished } =
        run(request.top, Some(memory), request.objective == Objective::Memory, 0);
    let report = |ranked: &Ranked| {
        let gpus = Some(ranked.layout.devices());
        estimator.estimate(&crate::estimate::EstimateRequest { gpus, ..request.under(ranked.price.text.clone()) })
    };
    let mut found = Found { best: Vec::new(), closest: None, search: so_far(candidates, finished) };
    if best.is_empty() {
        let least = run(1, None, true, candidates);
        found.closest = least.best.first().map(report).transpose()?;
        found.search = so_far(candidates + least.candidates, finished);
        return Ok(found);
    }
    found.best = search::each(&best, report).into_iter().collect::<Result<_, _>>()?;
    found.search.days = days(&found.best[0], request);
    found.search.seconds = began.elapsed().as_secs_f64();
    Ok(found)
}

/// Days in which a layout has seen the tokens that are to be trained on.
fn days(best: &EstimateReport, request: &PlanRequest) -> Option<f64> {
    let speed = best.predicted.tokens_per_s_per_gpu * best.layout.devices() as f64;
    request.tokens.map(|tokens| tokens / speed / 86400.0)
}

/// Whether numbers are in their range.
fn check(request: &PlanRequest) -> Result<(), Error> {
    let wrong = |message: String, help: &str| Err(Error::input(Code::BadOption, message).help(help));
    if request.gpus == 0 {
        return wrong("`--gpus` is 0 or left out".into(), "--gpus takes the number of devices that there are");
    }
    match request.max_gpus {
        Some(most) if most < request.gpus => {
            return wrong(
                format!("--max-gpus {most} is less than --gpus {}", request.gpus),
                "--max-gpus takes the most devices that may be used",
            );
        }
        _ => {}
    }
    if request.top == 0 {
        return wrong("`--top` is 0".into(), "--top takes how many layouts are wanted, the best one included");
    }
    match [request.deadline, request.tokens].into_iter().flatten().find(|number| !(*number > 0.0 && number.is_finite()))
    {
        Some(number) => {
            wrong(format!("{number} is no number of seconds or tokens"), "--deadline and --tokens are above 0")
        }
        None => Ok(()),
    }
}
