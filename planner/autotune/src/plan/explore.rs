//! Searches in addition to a plan's: the best configuration with another choice, and configurations beyond the stack.

use super::large_microbatch::LargeMicrobatches;
use super::oracle::Costs;
use super::report::Faster;
use super::request::PlanRequest;
use super::space::{Subspace, space};
use crate::error::Error;
use crate::search::{self, Task, has_usual_sizes};
use compiler::deadline::Deadline;
use compiler::parallel::{self, Pins};
use cost::{Cluster, Supports};
use estimator::{BudgetSizes, EstimateReport, EstimateRequest, Estimator, Evaluator, ModelWork};
use ir::config_key::ConfigKey;
use ir::options::ParallelConfig;
use scheduler::schedules::SCHEDULES;

/// Least relative gain for which a configuration beyond the stack is reported.
const WORTH_TELLING: f64 = 0.005;

/// The job of a plan, for further searches.
pub struct Explorer<'a> {
    estimator: &'a Estimator,
    request: PlanRequest,
    evaluator: Evaluator,
    work: ModelWork,
    part: Subspace,
    /// Deadline of all searches.
    until: Deadline,
}

impl<'a> Explorer<'a> {
    /// Opens the job of a request on the number of devices of its plan, in the plan's part of the space.
    ///
    /// # Errors
    /// As [`find`](super::find).
    pub fn new(
        estimator: &'a Estimator,
        request: &PlanRequest,
        plan: &ParallelConfig,
        until: Deadline,
    ) -> Result<Explorer<'a>, Error> {
        Explorer::on(estimator, request, (plan.devices(), plan), until)
    }

    /// Opens the job of a request on another number of devices, in a configuration's part of the space.
    ///
    /// # Errors
    /// As [`find`](super::find).
    pub(crate) fn on(
        estimator: &'a Estimator,
        request: &PlanRequest,
        (devices, like): (u64, &ParallelConfig),
        until: Deadline,
    ) -> Result<Explorer<'a>, Error> {
        let request = PlanRequest { gpus: devices, max_gpus: None, ..request.clone() };
        let evaluator = Evaluator::new(estimator, request.under(String::new()), [devices; 2])?;
        let part = Subspace {
            offload: !like.offload.is_none(),
            offload_optimizer: like.offload_optimizer,
            odd: !has_usual_sizes(like),
        };
        let work = evaluator.work()?;
        Ok(Explorer { estimator, request, evaluator, work, part, until })
    }

    /// Best configuration with these pins in addition to the request's that takes less than `enough` seconds, of all
    /// configurations or of those near one. Returns `None` if there is none, or none was found in time.
    pub fn better(&self, pins: &str, below: f64, around: Option<ParallelConfig>) -> Option<EstimateReport> {
        let pin = parallel::pinned(&self.request.pin, pins);
        let request = PlanRequest { pin, ..self.request.clone() };
        let space = space(&request, &self.evaluator, self.until.clone(), self.part).ok()?;
        let roots = space.roots();
        let large = LargeMicrobatches::new(&self.evaluator, &space);
        let oracle = Costs::new(&self.evaluator, self.work, &space, &large, true);
        let memory = Some(self.evaluator.memory_budget(BudgetSizes::default()));
        let task = Task {
            wanted: 1,
            memory,
            by_memory: false,
            exhaustive: false,
            below,
            gap: 0.0,
            around,
            progress: &mut |_| (),
        };
        let found = search::search(&space, &roots, &oracle, task);
        let best = found.best.first().filter(|best| best.cost.seconds < below)?;
        let asked = EstimateRequest { gpus: Some(request.gpus), ..request.under(best.cost.text.clone()) };
        self.estimator.estimate(&asked).ok()
    }
}

impl Explorer<'_> {
    /// True if a configuration has the request's pins.
    pub(super) fn allows(&self, parallel: &ParallelConfig) -> bool {
        Pins::parse(&self.request.pin).is_ok_and(|pins| pins.holds(parallel))
    }

    /// Prediction of a configuration, if it has the request's pins and can be predicted.
    pub(super) fn predict(&self, parallel: &ParallelConfig) -> Option<EstimateReport> {
        let asked = EstimateRequest { gpus: Some(self.request.gpus), ..self.request.under(parallel::print(parallel)) };
        if self.allows(parallel) { self.estimator.estimate(&asked).ok() } else { None }
    }

    /// Hardware of the job.
    pub(super) fn cluster(&self) -> &Cluster {
        self.evaluator.platform(self.request.gpus).cluster
    }

    /// ZeRO stage that most runs with these degrees use on the stack.
    pub(super) fn usual_zero(&self, parallel: &ParallelConfig) -> u8 {
        search::usual_zero(self.supports(), parallel)
    }

    /// Options that the stack supports.
    pub(super) fn supports(&self) -> &Supports {
        &self.evaluator.stack().supports
    }
}

/// Best configuration with a plan's degrees and micro-batch that the stack does not support, if its gain is large enough. Schedules that
/// make an order for each choice of what is recomputed are left out: a hint is not worth their time.
pub fn beyond(
    estimator: &Estimator,
    request: &PlanRequest,
    best: &EstimateReport,
    until: Deadline,
) -> Result<Option<Faster>, Error> {
    if request.beyond_stack || estimator.stack(&request.stack)?.supports == Supports::default() {
        return Ok(None);
    }
    let wide = PlanRequest { beyond_stack: true, ..request.clone() };
    let explorer = Explorer::new(estimator, &wide, &best.parallel, until)?;
    let ParallelConfig { dp, tp, pp, cp, ep, etp, mbs, .. } = best.parallel;
    let degrees = format!("dp={dp},tp={tp},pp={pp},cp={cp},ep={ep},etp={etp},mbs={mbs}");
    let pins = if pp > 1 && !parallel::has_key(&request.pin, ConfigKey::Schedule) {
        let fixed = SCHEDULES.iter().filter(|kind| kind.has_fixed_order()).map(|kind| kind.name).collect::<Vec<_>>();
        format!("{degrees},schedule={}", fixed.join("|"))
    } else {
        degrees
    };
    let seconds = best.predicted.step_time_s;
    let Some(other) = explorer.better(&pins, seconds * (1.0 - WORTH_TELLING), None) else { return Ok(None) };
    // A plan that is the simplest has faster ones within the stack too.
    let lacks = estimator.beyond(&request.under(String::new()), [&other.parallel])?;
    Ok(lacks.iter().any(|items| !items.is_empty()).then(|| Faster::of(&other, best)))
}
