//! Estimates of single requests, and the databases that requests share.

use super::action_order::OrderCache;
use super::candidate::Candidate;
use super::cost_database::{CostDatabase, Planning, SharedResults};
use super::error::Error;
use super::headroom::{BudgetSizes, Headroom};
use super::model_plans::ModelPlans;
use super::path_platform::PathPlatform;
use super::pipeline::drawn_costs;
use super::place::config_on;
use super::prediction::Prediction;
use super::projection::CostContext;
use super::report::EstimateReport;
use super::request::EstimateRequest;
use super::stack_support::{Beyond, beyond};
use compiler::batch::microbatches;
use compiler::compile::check_text;
use compiler::machine_source;
use compiler::model_source::ModelSource;
use cost::{Cluster, Platform, Stack};
use ir::options::{Offload, ParallelConfig, Recompute};
use std::sync::{Arc, Mutex, PoisonError};
use support::query::Memo;
use view::report::ScheduleRequest;

/// Requests whose costs are retained. A plan needs two: its own, and the one without its stack's limits.
const RETAINED: usize = 2;

/// Predicts steps. Requests share common results: use one estimator for many requests, and share it among threads.
#[derive(Default)]
pub struct Estimator {
    plans: Arc<Plans>,
    /// Costs in which each configuration is planned by itself.
    databases: Arc<Memo<CostContext, CostDatabase>>,
    /// Costs of the last requests evaluated for many configurations, the last one first.
    evaluated: Mutex<Vec<(CostContext, Arc<CostDatabase>)>>,
    clusters: Memo<String, Cluster>,
    stacks: Arc<Memo<String, Stack>>,
}

/// Results that requests on other clusters and stacks share.
#[derive(Default)]
struct Plans {
    models: Memo<String, Arc<ModelPlans>>,
    orders: Arc<OrderCache>,
    /// The platforms that have chosen paths, by their keys.
    paths: Memo<String, PathPlatform>,
}

impl Estimator {
    /// An estimator without results.
    pub fn new() -> Estimator {
        Estimator::default()
    }

    /// An estimator that takes this model under its [name](ModelSource::name). It shares nothing.
    ///
    /// # Errors
    /// The model does not compile, or states its own mesh or gradients.
    pub fn with_model(source: ModelSource) -> Result<Estimator, Error> {
        let models = Memo::with(source.name().to_string(), model_plans(source)?);
        Ok(Estimator { plans: Arc::new(Plans { models, ..Plans::default() }), ..Estimator::default() })
    }

    /// An estimator that shares the planned models, and takes this stack under its name.
    #[must_use]
    pub fn with_stack(&self, stack: Stack) -> Estimator {
        let stacks = Arc::new(Memo::with(stack.name.clone(), stack));
        Estimator { plans: self.plans.clone(), stacks, ..Estimator::default() }
    }

    /// An estimator that shares the planned models and the stacks, and takes this cluster under its name.
    #[must_use]
    pub fn with_cluster(&self, cluster: Cluster) -> Estimator {
        let clusters = Memo::with(cluster.name.clone(), cluster);
        let (plans, stacks) = (self.plans.clone(), self.stacks.clone());
        Estimator { plans, stacks, clusters, ..Estimator::default() }
    }

    /// An estimator that shares all costs, and gives each device of the named cluster `bytes` of memory.
    ///
    /// # Errors
    /// As [`Estimator::cluster`].
    pub fn with_memory(&self, name: &str, bytes: u64) -> Result<Estimator, Error> {
        let mut cluster = Cluster::clone(&*self.cluster(name)?);
        (cluster.device.memory, cluster.shared_memory) = (bytes, None);
        let (plans, databases, stacks) = (self.plans.clone(), self.databases.clone(), self.stacks.clone());
        let clusters = Memo::with(name.to_string(), cluster);
        Ok(Estimator { plans, databases, stacks, clusters, evaluated: Mutex::default() })
    }

    /// The cluster of a name: one that it was given, a preset, or a file.
    ///
    /// # Errors
    /// There is none of this name, or the file cannot be read or used.
    pub fn cluster(&self, name: &str) -> Result<Arc<Cluster>, Error> {
        self.clusters.get(&name.to_string(), || Ok(machine_source::cluster(name)?))
    }

    /// The cluster of a name, with the rates that its kernels have in a precision.
    ///
    /// # Errors
    /// As for [`Estimator::cluster`].
    pub(super) fn cluster_in(&self, name: &str, precision: &str) -> Result<Arc<Cluster>, Error> {
        let cluster = self.cluster(name)?;
        // Others have one rate for all formats of 16 bits, and are not copied.
        Ok(if cluster.device.widens_f16 { Arc::new(Cluster::clone(&cluster).computing_in(precision)) } else { cluster })
    }

    /// The stack of a name: one that it was given, a preset, or a file.
    ///
    /// # Errors
    /// There is none of this name, or the file cannot be read or used.
    pub fn stack(&self, name: &str) -> Result<Arc<Stack>, Error> {
        self.stacks.get(&name.to_string(), || Ok(machine_source::stack(name)?))
    }

    /// Predicts a step of the request. With `recompute=auto`, the step has the fastest recomputation that fits, and with
    /// `offload=auto` the fewest offloaded layers; the report's configuration names them.
    ///
    /// # Errors
    /// A name is not known, or the configuration fits neither the devices nor the model.
    pub fn estimate(&self, request: &EstimateRequest) -> Result<EstimateReport, Error> {
        self.with_prediction(request, |mut prediction| {
            let ParallelConfig { recompute, offload, .. } = &prediction.candidate.parallel;
            match (recompute, offload) {
                (Recompute::Auto, _) => self.least(prediction),
                (_, Offload::Auto) => {
                    let stepped = prediction.least_offload()?;
                    prediction.report(stepped)
                }
                _ => prediction.report(prediction.stepped()?),
            }
        })
    }

    /// The pipeline of a request with the costs of its stages, in ms and GiB, to be drawn: of at most `most` micro-batches.
    ///
    /// # Errors
    /// As [`estimate`](Estimator::estimate).
    pub fn schedule(&self, request: &EstimateRequest, most: u32) -> Result<ScheduleRequest, Error> {
        self.with_prediction(request, |prediction| {
            let Candidate { parallel, microbatches, .. } = &prediction.candidate;
            let ParallelConfig { pp, vp, group, slices, ref schedule, .. } = *parallel;
            let staged = prediction.stepped()?.staged;
            Ok(ScheduleRequest {
                kind: schedule.clone(),
                stages: pp as u32,
                microbatches: (*microbatches).min(most),
                chunks: vp,
                group,
                slices,
                costs: drawn_costs(&staged.loads, &staged.hops, f64::from(slices.unwrap_or(1))),
                ..ScheduleRequest::default()
            })
        })
    }

    /// Parts of configurations that the request's stack does not support, in their order.
    ///
    /// # Errors
    /// A name is not known, or the model cannot have the request's sequences.
    pub fn beyond<'p>(
        &self,
        request: &EstimateRequest,
        configs: impl IntoIterator<Item = &'p ParallelConfig>,
    ) -> Result<Vec<Vec<Beyond>>, Error> {
        let context = CostContext::of(request);
        let database = &*self.databases.get(&context, || self.open(&context, Planning::Alone))?;
        let job = request.job_numbers(database.traits);
        Ok(configs.into_iter().map(|parallel| beyond(parallel, &database.stack, &job)).collect())
    }

    /// Calls `then` with the request's prediction.
    fn with_prediction<T>(
        &self,
        request: &EstimateRequest,
        then: impl FnOnce(Prediction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        request.check()?;
        let parallel = config_on(&request.parallel, request.gpus)?;
        let context = CostContext::of(request);
        let database = &*self.databases.get(&context, || self.open(&context, Planning::Alone))?;
        let microbatches = microbatches(request.global_batch, parallel.dp.saturating_mul(parallel.mbs))?;
        let cluster = self.cluster_in(&request.cluster, &request.precision)?;
        check_joined(&cluster, parallel.devices())?;
        let cores_each = cluster.cores_each(parallel.devices());
        let cluster = cluster.for_devices(parallel.devices());
        let platform = Platform { cluster: &cluster, stack: &database.stack, recipe: &database.recipe };
        let headroom = Headroom::of(request, &database.stack, &cluster.device.name, database.traits);
        let budget = cluster.device.memory as f64 * headroom.share(BudgetSizes::of(&parallel));
        let candidate = Candidate { parallel, platform, microbatches, cores_each, budget };
        then(Prediction { request, database, candidate })
    }

    /// Costs of a request whose configurations share plans; all results if one of the last requests had the same costs.
    pub(super) fn evaluated(&self, request: &EstimateRequest) -> Result<Arc<CostDatabase>, Error> {
        let context = CostContext::of(request);
        let mut last = self.evaluated.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = last.iter().position(|(of, _)| *of == context) {
            last[..=at].rotate_right(1);
            return Ok(Arc::clone(&last[0].1));
        }
        let database = Arc::new(self.open(&context, Planning::ByShape)?);
        last.insert(0, (context, Arc::clone(&database)));
        last.truncate(RETAINED);
        Ok(database)
    }

    /// A database without results, of the inputs that a context names.
    fn open(&self, context: &CostContext, planning: Planning) -> Result<CostDatabase, Error> {
        let (cluster, stack) = (self.cluster_in(&context.cluster, &context.precision)?, self.stack(&context.stack)?);
        let open = || model_plans(ModelSource::open(&context.model)?);
        let plans = self.plans.models.get(&context.model, open)?;
        let orders = Arc::clone(&self.plans.orders);
        let key = PathPlatform::key(&cluster, &stack);
        let paths = self.plans.paths.get(&key, || Ok::<_, Error>(PathPlatform::new(&cluster, &stack)))?;
        let shared = SharedResults { plans: Arc::clone(&plans), paths: PathPlatform::clone(&paths), orders };
        CostDatabase::new(context, planning, &cluster, stack, shared)
    }
}

/// Checks that the links of a cluster join a number of devices.
///
/// # Errors
/// There are more devices.
pub(super) fn check_joined(cluster: &Cluster, devices: u64) -> Result<(), Error> {
    let most = cluster.most_devices();
    if devices <= most { Ok(()) } else { Err(Error::UnjoinedDevices { cluster: cluster.name.clone(), devices, most }) }
}

/// A checked model without plans, with the ops that `compile` recognises.
///
/// # Errors
/// The model does not compile, or states its own mesh or gradients.
fn model_plans(source: ModelSource) -> Result<Arc<ModelPlans>, Error> {
    // First the errors of `compile`, then files that compile but state decisions that an estimate makes.
    check_text(&source)?;
    source.check_open()?;
    Ok(Arc::new(ModelPlans::new(source.recognised())))
}
