//! Builder of a plan.

use super::values::{ClusterInput, ConfigText, Machine, ModelInput, OptimizerText, PrecisionText, StackInput};
use crate::error::Error;
use crate::json;
use autotune::explain::{self, Planned, WhyNot, read_plan};
use autotune::plan::{Objective, PlanReport, PlanRequest, Progress, Search, find_until_cancelled};
use compiler::cancel::CancelToken;
use compiler::compile::{CompileRequest, compile_source};
use compiler::deadline::Deadline;
use compiler::model_source::ModelSource;
use compiler::parallel;
use compiler::text_files::write_text;
use estimator::Estimator;
use ir::text::File;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// Starts the request for the best configuration of a model: a preset, the path of a `config.json` or `.ir` file, the text of a
/// `config.json`, or a [`Model`](ir::graph::Model) or [`ModelConfig`](ir::models::ModelConfig).
///
/// ```
/// let plan = meshwright::plan("tiny-llama").on("h100", 2).batch(16, 128).pin("zero=1").run()?;
/// let best = &plan.report.chosen;
/// assert_eq!((best.parallel.devices(), best.parallel.zero), (2, 1));
/// assert!(best.predicted.fits);
/// # Ok::<(), meshwright::Error>(())
/// ```
pub fn plan<'a>(model: impl Into<ModelInput>) -> PlanBuilder<'a> {
    let (model, source) = model.into().named();
    PlanBuilder { source, ..PlanBuilder::from(PlanRequest { model, ..PlanRequest::default() }) }
}

/// Request of a plan with typed setters; [`plan`](fn@plan) starts one. It must name a cluster and a batch.
#[must_use = "a builder does nothing until `run`"]
pub struct PlanBuilder<'a> {
    request: PlanRequest,
    source: Option<Box<ModelSource>>,
    machine: Machine,
    progress: Box<Progress<'a>>,
    cancel: CancelToken,
}

impl From<PlanRequest> for PlanBuilder<'_> {
    fn from(request: PlanRequest) -> Self {
        let (source, machine, cancel) = (None, Machine::default(), CancelToken::new());
        PlanBuilder { request, source, machine, progress: Box::new(|_| ()), cancel }
    }
}

impl<'a> PlanBuilder<'a> {
    /// Sets the cluster and the number of its devices.
    pub fn on(mut self, cluster: impl Into<ClusterInput>, gpus: u64) -> Self {
        self.request.cluster = self.machine.on(cluster.into());
        self.request.gpus = gpus;
        self
    }

    /// Allows more devices, up to `gpus`, if they help.
    pub fn up_to(mut self, gpus: u64) -> Self {
        self.request.max_gpus = Some(gpus);
        self
    }

    /// Sets the training software; default: `megatron-core-2025`.
    pub fn stack(mut self, stack: impl Into<StackInput>) -> Self {
        self.request.stack = self.machine.with(stack.into());
        self
    }

    /// Sets the batch of a step: the number of sequences over all ranks, and the tokens of each.
    pub fn batch(mut self, sequences: u64, tokens: u64) -> Self {
        (self.request.global_batch, self.request.seq) = (sequences, tokens);
        self
    }

    /// Sets the number formats; default: `bf16`.
    pub fn precision(mut self, precision: impl Into<PrecisionText>) -> Self {
        self.request.precision = precision.into().0;
        self
    }

    /// Sets the optimizer: `adamw` (default), `momentum` or `sgd`.
    pub fn optimizer(mut self, optimizer: impl Into<OptimizerText>) -> Self {
        self.request.optimizer = optimizer.into().0;
        self
    }

    /// Fixes keys of the configuration.
    pub fn pin(mut self, keys: impl Into<ConfigText>) -> Self {
        self.request.pin = parallel::pinned(&self.request.pin, &keys.into().0);
        self
    }

    /// Sets the memory of each device in bytes; default: the cluster's.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.machine.memory(bytes);
        self
    }

    /// Sets the number of configurations in the answer, the best included; default: 5.
    pub fn top(mut self, configurations: usize) -> Self {
        self.request.top = configurations;
        self
    }

    /// Sets the objective; default: step time.
    pub fn objective(mut self, objective: Objective) -> Self {
        self.request.objective = objective;
        self
    }

    /// Limits the time of the search. The answer is the best configuration found by then.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.request.deadline = Some(deadline.as_secs_f64());
        self
    }

    /// Reports the progress of the search: see [`Progress`].
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let predicted = AtomicU64::new(0);
    /// let plan = meshwright::plan("tiny-llama").on("h100", 2).batch(16, 128);
    /// let plan = plan.progress(|search| predicted.store(search.candidates, Ordering::Relaxed)).run()?;
    /// assert!(predicted.into_inner() <= plan.report.search.unwrap().candidates);
    /// # Ok::<(), meshwright::Error>(())
    /// ```
    pub fn progress(mut self, progress: impl Fn(&Search) + Sync + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Ends the search with an error of [`Code::Cancelled`](ir::catalogue::Code::Cancelled) once `token` is cancelled.
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = token.clone();
        self
    }

    /// Changes the fields of the request that have no setter.
    ///
    /// ```
    /// let plan = meshwright::plan("tiny-llama").on("h100", 2).batch(16, 128).with(|request| request.tokens = Some(1e9));
    /// assert!(plan.run()?.report.search.unwrap().days.is_some());
    /// # Ok::<(), meshwright::Error>(())
    /// ```
    pub fn with(mut self, change: impl FnOnce(&mut PlanRequest)) -> Self {
        change(&mut self.request);
        self
    }

    /// Searches for the best configuration that fits, and explains it.
    ///
    /// # Errors
    /// [`Code::NothingFits`](ir::catalogue::Code::NothingFits) if no configuration fits in memory; [`answer`](Self::answer) gives
    /// the conflict then. [`Code::NotFinished`](ir::catalogue::Code::NotFinished) if the deadline passed before the first
    /// fit. A name is not known, a size is out of range, pins contradict each other, or the token is cancelled.
    pub fn run(self) -> Result<Plan, Error> {
        let (answer, source, estimator) = self.answered()?;
        match answer {
            Planned::Best(report) => Ok(Plan { report: *report, source, estimator }),
            Planned::Infeasible(answer) => Err(answer.error().into()),
        }
    }

    /// As [`run`](Self::run), with the conflict and its fixes as an answer.
    ///
    /// ```
    /// use meshwright::Planned;
    ///
    /// let answer = meshwright::plan("llama3-70b").on("h100", 1).batch(8, 4096).pin("mbs=1").answer()?;
    /// let Planned::Infeasible(infeasible) = answer else { panic!("70 billion parameters fit on one device") };
    /// assert!(infeasible.to_string().contains("CONFLICT"));
    /// # Ok::<(), meshwright::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run), without those of requests that do not fit.
    pub fn answer(self) -> Result<Planned, Error> {
        Ok(self.answered()?.0)
    }

    fn answered(self) -> Result<(Planned, Option<Box<ModelSource>>, Estimator), Error> {
        let PlanBuilder { request, source, machine, progress, cancel } = self;
        let estimator = machine.estimator(source.as_deref(), &request.cluster)?;
        let found = find_until_cancelled(&estimator, &request, &cancel, &*progress)?;
        Ok((explain::plan(&estimator, &request, found)?, source, estimator))
    }
}

/// A plan: the best configuration, and why it is the best. Its text is what `meshwright plan` prints.
pub struct Plan {
    /// Prediction, alternatives and reasons, with the fields of `plan --format json`.
    pub report: PlanReport,
    /// The model, where it is in memory.
    source: Option<Box<ModelSource>>,
    estimator: Estimator,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("report", &self.report).finish_non_exhaustive()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)
    }
}

impl Plan {
    /// Reads a plan file, which [`save`](Self::save) or `meshwright plan --format json` wrote. The report has the names of model,
    /// cluster and stack alone: a plan of values continues with [`Plan::of`].
    ///
    /// # Errors
    /// The file cannot be read, holds no plan, one of another version, or the answer that nothing fits.
    pub fn open(path: impl AsRef<Path>) -> Result<Plan, Error> {
        Ok(Plan::of(read_plan(path.as_ref())?, Estimator::new()))
    }

    /// A plan of a report. The estimator knows the report's cluster and stack, by name or as values.
    pub fn of(report: PlanReport, estimator: Estimator) -> Plan {
        Plan { report, source: None, estimator }
    }

    /// Writes a plan file, which [`open`](Self::open) and `meshwright explain` read.
    ///
    /// ```
    /// use meshwright::Plan;
    ///
    /// let plan = meshwright::plan("tiny-llama").on("h100", 2).batch(16, 128).run()?;
    /// let path = std::env::temp_dir().join(format!("meshwright-plan-{}.json", std::process::id()));
    /// plan.save(&path)?;
    /// assert_eq!(Plan::open(&path)?.report, plan.report);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), meshwright::Error>(())
    /// ```
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        Ok(write_text(path.as_ref(), &json(&self.report)?)?)
    }

    /// Compiles the model under the plan's configuration, to the program of every rank.
    ///
    /// # Errors
    /// The configuration has a key that can be predicted but not compiled, such as `cp_kind=ring`, or a precision other than f32,
    /// bf16 and f16. The model is not there any more.
    pub fn compile(&self) -> Result<File, Error> {
        let chosen = &self.report.chosen;
        let request = CompileRequest {
            model: chosen.inputs.model.clone(),
            parallel: parallel::print(&chosen.parallel),
            seq: chosen.inputs.seq,
            global_batch: Some(chosen.inputs.global_batch),
            precision: chosen.inputs.precision.clone(),
            cluster: Some(chosen.inputs.cluster.clone()),
            stack: Some(chosen.inputs.stack.clone()),
            ..CompileRequest::default()
        };
        let compile = |source: &ModelSource| Ok(compile_source(source, &request, None, &mut |_, _| ())?);
        match &self.source {
            Some(source) => compile(source),
            None => compile(&ModelSource::open(&request.model)?),
        }
    }

    /// Compares the plan with the best configuration that also has these keys.
    ///
    /// ```
    /// let plan = meshwright::plan("tiny-llama").on("h100", 2).batch(16, 128).run()?;
    /// let other = if plan.report.chosen.parallel.tp == 1 { "tp=2" } else { "tp=1" };
    /// println!("{}", plan.why_not(other)?.text(&plan.report, 100));
    /// # Ok::<(), meshwright::Error>(())
    /// ```
    ///
    /// # Errors
    /// The keys are no configuration, or the plan's cluster or stack is not known.
    pub fn why_not(&self, keys: impl Into<ConfigText>) -> Result<WhyNot, Error> {
        let inputs = &self.report.chosen.inputs;
        self.estimator.cluster(&inputs.cluster)?;
        self.estimator.stack(&inputs.stack)?;
        let find: &explain::Find<'_> = &|estimator, request| autotune::plan::find(estimator, request, &|_| ());
        Ok(explain::why_not(&self.estimator, &self.report, &keys.into().0, (find, &Deadline::default()))?)
    }

    /// Draws the plan as a web page with charts, which loads no other file.
    ///
    /// # Errors
    /// The model is not there any more.
    pub fn html(&self) -> Result<String, Error> {
        Ok(explain::page(&self.estimator, &self.report)?)
    }
}
