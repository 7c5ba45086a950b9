//! Evaluation of many configurations of one request, without reports.

use super::blocks::Blocks;
use super::candidate::{Candidate, Stepped};
use super::cost_database::CostDatabase;
use super::error::Error;
use super::estimator::{Estimator, check_joined};
use super::headroom::{BudgetSizes, Headroom};
use super::job_numbers::{JobNumbers, refused};
use super::memory::fullest_host;
use super::model_work::ModelWork;
use super::offload_choice::as_needed;
use super::pipeline::ScheduledPipeline;
use super::projection::BlockConfig;
use super::recompute_choice::{Trial, crowded, fitting};
use super::relaxation::{Relaxation, StepCost};
use super::replicas::running_zero;
use super::request::EstimateRequest;
use super::stack_support::stacks_on;
use compiler::model_source::ModelSource;
use cost::{Cluster, Platform, Stack};
use ir::dim_role::DimRole;
use ir::options::{Offload, ParallelConfig, Recompute};
use std::sync::{Arc, OnceLock};

/// Costs and lower bounds of configurations: a model and a batch on a cluster, evaluated for many configurations.
pub struct Evaluator {
    pub(super) request: EstimateRequest,
    /// The fewest devices of a configuration.
    least: u64,
    /// The cluster of each number of devices from the fewest on, if devices share cores or memory.
    clusters: Box<[OnceLock<Box<Cluster>>]>,
    cluster: Arc<Cluster>,
    headroom: Headroom,
    job: JobNumbers,
    pub(super) database: Arc<CostDatabase>,
}

impl Evaluator {
    /// Makes the evaluator of a request, for any number of devices from the first to the second of `devices`.
    ///
    /// # Errors
    /// A name is not known, a size is 0, or the links do not join as many devices.
    pub fn new(estimator: &Estimator, request: EstimateRequest, devices: [u64; 2]) -> Result<Evaluator, Error> {
        request.check()?;
        let database = estimator.evaluated(&request)?;
        let cluster = estimator.cluster_in(&request.cluster, &request.precision)?;
        check_joined(&cluster, devices[1])?;
        let traits = database.traits;
        let headroom = Headroom::of(&request, &database.stack, &cluster.device.name, traits);
        let job = request.job_numbers(traits);
        let [least, most] = devices;
        let is_shared = cluster.cores.is_some() || cluster.shared_memory.is_some();
        let counts = if is_shared { most.saturating_sub(least) + 1 } else { 0 };
        let clusters = (0..counts).map(|_| OnceLock::new()).collect();
        Ok(Evaluator { least, clusters, request, cluster, headroom, job, database })
    }

    /// The model.
    pub fn source(&self) -> &ModelSource {
        &self.database.plans.source
    }

    /// Returns `true` if devices can offload activations: the host and its memory are known, and the stack supports it.
    pub fn offloads(&self) -> bool {
        self.has_host() && self.stack().supports.offload != Some(false)
    }

    /// Returns `true` if devices can offload optimizer states.
    pub fn offloads_optimizer(&self) -> bool {
        self.has_host() && self.stack().supports.offload_optimizer != Some(false)
    }

    fn has_host(&self) -> bool {
        self.cluster.host_bandwidth() > 0.0 && self.cluster.host.is_some()
    }

    /// The software.
    pub fn stack(&self) -> &Stack {
        &self.database.stack
    }

    /// The machine with this number of devices of the cluster, as the stack uses them.
    pub fn platform(&self, devices: u64) -> Platform<'_> {
        let place = devices.checked_sub(self.least).and_then(|place| usize::try_from(place).ok());
        let dealt = place.and_then(|place| self.clusters.get(place));
        let cluster =
            dealt.map_or(&*self.cluster, |dealt| dealt.get_or_init(|| Box::new(self.cluster.for_devices(devices))));
        Platform { cluster, stack: &self.database.stack, recipe: &self.database.recipe }
    }

    /// Checks that the stack runs on the devices, and that these compute in the request's precision.
    ///
    /// # Errors
    /// They do not, and the request does not allow it.
    pub fn check_devices(&self) -> Result<(), Error> {
        let EstimateRequest { precision, beyond_stack, .. } = &self.request;
        if *beyond_stack {
            return Ok(());
        }
        let stack = self.stack();
        if !stack.supports.vendor(self.cluster.device.vendor.as_deref()) {
            return Err(Error::BeyondVendor {
                stack: stack.name.clone(),
                device: self.cluster.device.name.clone(),
                stated: stack.supports.source("vendors").to_string(),
                others: stacks_on(&self.cluster.device),
            });
        }
        if self.cluster.device.computes_in(precision) {
            return Ok(());
        }
        let has = self.cluster.device.precisions.clone().unwrap_or_default();
        Err(Error::BeyondDevice { precision: precision.clone(), cluster: self.cluster.name.clone(), has })
    }

    /// Numbers of the job that rules name.
    pub fn job_numbers(&self) -> JobNumbers {
        self.job
    }

    /// Memory budget of a device in bytes: with at most as much predicted memory, configurations of these sizes keep the
    /// request's headroom. Where sizes are open, it is the largest budget.
    pub fn memory_budget(&self, sizes: BudgetSizes) -> f64 {
        let devices = sizes.devices.unwrap_or(self.least);
        self.platform(devices).cluster.device.memory as f64 * self.headroom.share(sizes)
    }

    pub(super) fn microbatches(&self, parallel: &ParallelConfig) -> u32 {
        u32::try_from(self.request.global_batch / (parallel.dp * parallel.mbs)).unwrap_or(u32::MAX)
    }

    pub(super) fn candidate(&self, parallel: ParallelConfig) -> Candidate<'_> {
        Candidate {
            platform: self.platform(parallel.devices()),
            microbatches: self.microbatches(&parallel),
            cores_each: self.cores_each(&parallel),
            budget: self.memory_budget(BudgetSizes::of(&parallel)),
            parallel,
        }
    }

    pub(super) fn cores_each(&self, parallel: &ParallelConfig) -> u64 {
        self.cluster.cores_each(parallel.devices())
    }

    /// Costs of the blocks under a configuration.
    pub(super) fn block_costs(&self, parallel: &ParallelConfig) -> Result<Arc<Blocks>, Error> {
        self.database.block_costs(&self.block_config(parallel)?)
    }

    fn block_config(&self, parallel: &ParallelConfig) -> Result<BlockConfig, Error> {
        BlockConfig::of(parallel, self.cores_each(parallel), refused(parallel, self.stack()))
    }

    /// ZeRO stage under which a configuration's micro-batches run.
    pub fn zero(&self, parallel: &ParallelConfig) -> u8 {
        running_zero(parallel, self.microbatches(parallel), &self.platform(parallel.devices()))
    }

    /// Returns `true` if the blocks whose reshards depend on sizes have the same statements in both configurations.
    ///
    /// # Errors
    /// As [`Evaluator::cost`].
    pub fn have_same_statements(&self, one: &ParallelConfig, other: &ParallelConfig) -> Result<bool, Error> {
        let plan = |parallel| self.database.shared_plan(&self.block_config(parallel)?);
        Ok(Arc::ptr_eq(&plan(one)?, &plan(other)?))
    }

    /// Seconds of a step under a configuration, and bytes of the peak-memory device.
    ///
    /// # Errors
    /// The configuration does not fit the model, its schedule does not suit it, or the host's memory does not hold what is offloaded.
    pub fn cost(&self, parallel: &ParallelConfig) -> Result<StepCost, Error> {
        let candidate = self.candidate(parallel.clone());
        let stepped = self.database.stepped(&candidate)?;
        if stepped.fits_host(candidate.platform.cluster) {
            return Ok(stepped.floor());
        }
        Err(Error::HostMemory)
    }

    /// The configuration with as few layers offloaded as must be, and what it takes.
    fn least_offload(&self, parallel: &ParallelConfig) -> Result<(ParallelConfig, StepCost), Error> {
        let mut candidate = self.candidate(parallel.clone());
        let (budget, stack) = (candidate.budget, self.stack());
        let under = |offload: Offload| {
            candidate.parallel.offload = offload;
            self.database.stepped(&candidate)
        };
        let (offload, stepped) = as_needed(under, budget, stack)?;
        if stepped.fits_host(self.platform(parallel.devices()).cluster) {
            return Ok((ParallelConfig { offload, ..parallel.clone() }, stepped.floor()));
        }
        Err(Error::HostMemory)
    }

    /// The configuration with the fastest choice of values to recompute that fits in memory. Returns `None` if the
    /// configuration fits without recomputation, if no choice fits, or if it would take more than `enough` seconds. With
    /// `offload=auto` as few layers are offloaded as must be. With
    /// offloading, recomputing can always reduce the copies, so the result is the fastest choice of all.
    ///
    /// # Errors
    /// As [`Evaluator::cost`].
    pub fn fitting(&self, parallel: &ParallelConfig, enough: f64) -> Result<Option<(ParallelConfig, StepCost)>, Error> {
        match (parallel.offload, &parallel.recompute) {
            (Offload::None, _) => {}
            (Offload::Auto, Recompute::Auto) => {
                let all = ParallelConfig { offload: Offload::All(None), ..parallel.clone() };
                let Some((all, _)) = self.within_host(&all)? else { return Ok(None) };
                return self.least_offload(&ParallelConfig { offload: Offload::Auto, ..all }).map(Some);
            }
            (Offload::Auto, _) => return self.least_offload(parallel).map(Some),
            (Offload::All(_), _) => return self.within_host(parallel),
        }
        let mut candidate = self.candidate(ParallelConfig { recompute: Recompute::None, ..parallel.clone() });
        let none = self.database.stepped(&candidate)?;
        let budget = candidate.budget;
        if none.floor().bytes <= budget {
            return Ok(None);
        }
        let runs = crowded(&none.staged, &none.memory, |rank| rank.device, &none.blocks.outline, budget);
        let choices = self.database.frontier(&candidate.block_config()?, &runs)?;
        let schedule = ScheduledPipeline::of(parallel, candidate.microbatches)?;
        let longer = Relaxation::of(&candidate, &none.blocks).longer(&none.staged, &schedule);
        let under = |recompute: Recompute| {
            candidate.parallel.recompute = recompute;
            let floor = self.database.stepped(&candidate)?.floor();
            Ok(Trial { bytes: floor.bytes, of: (candidate.parallel.clone(), floor) })
        };
        let is_too_slow = |chosen: &[usize]| longer.seconds(|block| choices.least(chosen, block)) > enough;
        fitting(&choices, none.floor().bytes, budget, under, is_too_slow)
    }

    /// The configuration with the fastest choice of values to recompute while the rest is offloaded, if host memory holds the
    /// rest. Returns `None` if recomputing nothing is fastest.
    fn within_host(&self, parallel: &ParallelConfig) -> Result<Option<(ParallelConfig, StepCost)>, Error> {
        let names = self.database.offload_choice(&self.block_config(parallel)?)?;
        let mut candidate = self.candidate(ParallelConfig { recompute: Recompute::None, ..parallel.clone() });
        let mut under = |recompute: Recompute| {
            candidate.parallel.recompute = recompute;
            let stepped: Stepped = self.database.stepped(&candidate)?;
            Ok::<_, Error>((
                Trial { bytes: fullest_host(&stepped.memory), of: (candidate.parallel.clone(), stepped.floor()) },
                stepped,
            ))
        };
        let budget = self.platform(parallel.devices()).cluster.host_memory().unwrap_or(f64::INFINITY);
        if !names.is_empty() {
            let fastest = under(Recompute::Selective(names.to_vec()))?.0;
            if fastest.bytes <= budget {
                return Ok(Some(fastest.of));
            }
        }
        let (none, stepped) = under(Recompute::None)?;
        if none.bytes <= budget {
            return Ok(None);
        }
        let runs = crowded(&stepped.staged, &stepped.memory, |rank| rank.host, &stepped.blocks.outline, budget);
        let choices = self.database.frontier(&self.block_config(parallel)?, &runs)?;
        fitting(&choices, none.bytes, budget, |recompute| Ok(under(recompute)?.0), |_| false)
    }

    /// Work of a sequence, and the parameters.
    ///
    /// # Errors
    /// The model cannot be planned for one device.
    pub fn work(&self) -> Result<ModelWork, Error> {
        let batch = match self.source().base() {
            ModelSource::Text { file, .. } => file.model.dim_of(DimRole::Batch).map_or(1, |dim| dim.size),
            _ => 1,
        };
        Ok(ModelWork::of(&*self.block_costs(&ParallelConfig::default())?, batch))
    }
}
