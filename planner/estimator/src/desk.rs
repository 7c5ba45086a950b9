//! Evaluation of many configurations of one request: names are resolved once, and no report is made.

use super::blocks::{Blocks, Which};
use super::estimator::{Estimator, Job, Staged, Stepped};
use super::fitting::{Means, Ways, hosted};
use super::floor::{Floor, Open, work_of};
use super::keys::{BlockKey, MeanKey};
use super::memo::{Memo, Once};
use super::memory::fullest_host;
use super::replicas::Replicas;
use super::request::EstimateRequest;
use super::resize::Part;
use super::stages::{is_even, starts};
use super::tensors::{Tried, choices, choices_of_each, crowded, fastest, fitting};
use super::work::Work;
use compiler::error::Error;
use compiler::model_source::ModelSource;
use compiler::pipeline::CompileError;
use cost::{Again, Cluster, Frontier, Machine, Profile, Recipe, Stack};
use ir::catalogue::Code;
use ir::options::{ParallelConfig, Recompute};
use scheduler::placement::{Pipeline, Placement};
use scheduler::predict::pipeline_of;
use scheduler::schedules::ScheduleKind;
use std::collections::HashMap;
use std::sync::Arc;

/// Evaluation context: a model and a batch on a cluster, queried for many configurations.
pub struct Desk<'e> {
    estimator: &'e Estimator,
    request: EstimateRequest,
    /// Clusters by the cores of each device, if devices share cores.
    clusters: HashMap<u64, Cluster>,
    cluster: Arc<Cluster>,
    stack: Arc<Stack>,
    recipe: Recipe,
    source: Arc<ModelSource>,
    known: Arc<Known>,
}

/// Cache of the results of a request, independent of its pins and of the number of devices.
#[derive(Default)]
pub(super) struct Known {
    blocks: Once<BlockKey, Result<Arc<Blocks>, Error>>,
    /// Blocks without experts only, for unsharded experts.
    others: Once<BlockKey, Result<Arc<Blocks>, Error>>,
    /// First block instances of the stages, independent of how layers are recomputed.
    cuts: Memo<(BlockKey, u32, u32, Placement), Vec<usize>>,
    /// Choices of values to recompute, by the number of instances of each block.
    choices: Once<(BlockKey, Vec<u64>), Frontier>,
    /// Ordered stages, by the fields of a configuration that a pipeline depends on.
    flows: Once<(ParallelConfig, u64), Staged>,
    /// For blocks that save everything: the options to save less.
    ways: Once<BlockKey, Ways>,
    /// For the same blocks: the values that one instance of each may recompute.
    each: Once<BlockKey, Vec<Vec<Again>>>,
    /// For the same blocks: the values to recompute in the fastest choice if the rest is offloaded to host memory.
    hosted: Once<BlockKey, Vec<String>>,
    /// Lower bounds over all pipelines.
    means: Memo<MeanKey, Floor>,
}

/// Quantity requested from the lower bound of a search node.
pub enum Ask {
    /// Lower bound on step time, in seconds, for configurations that fit in the budget `room`, given the options `means` for
    /// saving memory. If `is_ordered`, the order may be decided. The computation may stop as soon as the bound exceeds
    /// `enough`.
    Seconds {
        /// Seconds from which on the bound need not be tighter.
        enough: f64,
        /// Memory budget of a device, in bytes.
        room: f64,
        /// How configurations may save memory.
        means: Means,
        /// True if the order of actions is decided.
        is_ordered: bool,
    },
    /// Lower bounds on the seconds and bytes of the configuration itself.
    Bytes,
}

impl<'e> Desk<'e> {
    /// Makes the desk of a request, for any number of devices from the first to the second of `devices`.
    ///
    /// # Errors
    /// A name is not known, or a size is 0.
    pub fn new(estimator: &'e Estimator, request: EstimateRequest, devices: [u64; 2]) -> Result<Desk<'e>, Error> {
        request.check()?;
        let (cluster, stack, source) = estimator.named(&request)?;
        let stack = request.allowed(stack);
        let recipe = request.recipe(&stack)?;
        let cluster = Arc::new(cluster.with_margin(request.memory_margin));
        let (clusters, known) = (dealt(&cluster, devices), estimator.known(&request));
        Ok(Desk { estimator, request, clusters, cluster, stack, recipe, source, known })
    }

    /// The model.
    pub fn source(&self) -> &ModelSource {
        &self.source
    }

    /// Returns `true` if devices can offload: the host and its memory are known, and the stack supports offloading.
    pub fn offloads(&self) -> bool {
        let has_host = self.cluster.device.host_bandwidth > 0.0 && self.cluster.host.is_some();
        has_host && self.stack.supports.offload != Some(false)
    }

    /// The software.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The machine with this number of devices of the cluster, as the stack uses them.
    pub fn machine(&self, devices: u64) -> Machine<'_> {
        let cluster = self.clusters.get(&self.cluster.cores_each(devices)).unwrap_or(&self.cluster);
        Machine { cluster, stack: &self.stack, recipe: &self.recipe }
    }

    fn microbatches(&self, parallel: &ParallelConfig) -> u32 {
        u32::try_from(self.request.global_batch / (parallel.dp * parallel.mbs)).unwrap_or(u32::MAX)
    }

    fn job(&self, parallel: ParallelConfig) -> Job<'_> {
        Job {
            request: &self.request,
            machine: self.machine(parallel.devices()),
            source: &self.source,
            microbatches: self.microbatches(&parallel),
            parallel,
        }
    }

    /// ZeRO stage under which a configuration's micro-batches run.
    pub fn zero(&self, parallel: &ParallelConfig) -> u8 {
        Replicas::new(parallel, self.microbatches(parallel), &self.machine(parallel.devices())).zero
    }

    /// Costs of the blocks under a configuration. A plan that fails is tried only once.
    fn blocks(&self, job: &Job<'_>) -> Result<(BlockKey, Arc<Blocks>), Error> {
        let key = BlockKey::of(&job.parallel, &job.machine)?;
        let make = || Ok::<_, Error>(self.among(&key).map_or_else(|| self.priced(job), Ok).map(Arc::new));
        let known = Result::clone(&*self.known.blocks.get(&key, make)?);
        known.map(|blocks| (key, blocks))
    }

    /// Costs of blocks that save everything, if a cached result with whole-layer recomputation contains them.
    fn among(&self, key: &BlockKey) -> Option<Blocks> {
        let whole = self.known.blocks.known(&key.with_whole_layers()?)?;
        let Blocks { outline, profiles, .. } = &**whole.as_ref().as_ref().ok()?;
        Some(Blocks { outline: Arc::clone(outline), profiles: profiles.clone(), again: None })
    }

    /// Estimates the costs of the blocks.
    fn priced(&self, job: &Job<'_>) -> Result<Blocks, Error> {
        let others = self.others(job)?;
        self.estimator.priced_by_shape(job, others.as_deref().map_or(Which::All, Which::Experts))
    }

    /// Costs of the blocks without experts, if these do not depend on how experts are sharded over ranks. This holds in a
    /// built model, unless these blocks exchange parts: there, finer axes may allow another reshard path.
    fn others(&self, job: &Job<'_>) -> Result<Option<Arc<Blocks>>, Error> {
        if !job.source.is_built() || !job.parallel.has_folded_experts() {
            return Ok(None);
        }
        let whole = self.job(ParallelConfig { ep: 1, etp: 1, ..job.parallel.clone() });
        let make = || Ok::<_, Error>(self.estimator.priced_by_shape(&whole, Which::Others).map(Arc::new));
        let others = Result::clone(&*self.known.others.get(&BlockKey::of(&whole.parallel, &whole.machine)?, make)?)?;
        let exchanges = |of: &Profile| of.f.ep + of.i.ep + of.w.ep > 0.0;
        Ok((!others.profiles.iter().any(exchanges)).then_some(others))
    }

    /// Returns `true` if the blocks whose reshards depend on sizes have the same statements in both configurations.
    ///
    /// # Errors
    /// As [`Desk::price`].
    pub fn have_same_statements(&self, one: ParallelConfig, other: ParallelConfig) -> Result<bool, Error> {
        let plan = |parallel: ParallelConfig| {
            let job = self.job(parallel);
            let part = if self.others(&job)?.is_some() { Part::Experts } else { Part::All };
            Ok::<_, Error>(self.estimator.planned_by_shape(&job, part)?.0)
        };
        Ok(Arc::ptr_eq(&plan(one)?, &plan(other)?))
    }

    /// First block instance of each stage; cached unless all stages have equally many layers.
    fn starts(&self, job: &Job<'_>, key: BlockKey, blocks: &Blocks, pipeline: &Pipeline) -> Result<Vec<usize>, Error> {
        let parallel = &job.parallel;
        let by = self.stack.facts.cut;
        if !parallel.stages.is_empty() || is_even(blocks, parallel, by, pipeline.stages()) {
            return starts(blocks, parallel, by, pipeline);
        }
        let key = key.keeping_all();
        let key = (key, pipeline.ranks, pipeline.chunks, pipeline.placement);
        Ok(self.known.cuts.get(&key, || starts(blocks, parallel, by, pipeline))?.to_vec())
    }

    /// Seconds of a step under a configuration, and bytes of the peak-memory device.
    ///
    /// # Errors
    /// The configuration does not fit the model, its schedule does not suit it, or the host's memory does not hold what is offloaded.
    pub fn price(&self, parallel: &ParallelConfig) -> Result<Floor, Error> {
        let job = self.job(parallel.clone());
        let stepped = self.stepped(&job)?;
        if stepped.fits_host(job.machine.cluster) {
            return Ok(stepped.floor());
        }
        Err(Error::input(Code::NothingFits, "the offloaded activations do not fit into host memory")
            .help("recompute more, or leave out offload=true"))
    }

    fn stepped(&self, job: &Job<'_>) -> Result<Stepped, Error> {
        let (key, blocks) = self.blocks(job)?;
        let (kind, pipeline) = pipeline_of(&job.parallel, job.microbatches).map_err(CompileError::from)?;
        let staged = self.staged(job, key, &blocks, kind, &pipeline)?;
        let (step, memory) = job.step(&blocks, &staged);
        Ok(Stepped { blocks, staged, step, memory })
    }

    /// The configuration with the fastest choice of values to recompute that fits in memory. Returns `None` if the
    /// configuration fits without recomputation, if no choice fits, or if it would take more than `enough` seconds. With
    /// offloading, recomputing can always reduce the copies, so the result is the fastest choice of all.
    ///
    /// # Errors
    /// As [`Desk::price`].
    pub fn fitting(&self, parallel: &ParallelConfig, enough: f64) -> Result<Option<(ParallelConfig, Floor)>, Error> {
        if parallel.offload {
            return self.hosted(parallel);
        }
        let mut job = self.job(ParallelConfig { recompute: Recompute::None, ..parallel.clone() });
        let (none, room) = (self.stepped(&job)?, job.machine.cluster.device.memory as f64);
        if none.floor().bytes <= room {
            return Ok(None);
        }
        let runs = crowded(&none.staged, &none.memory, |rank| rank.device, &none.blocks.outline, room);
        let choices = self.choices(&job, &runs)?;
        let (kind, pipeline) = pipeline_of(parallel, job.microbatches).map_err(CompileError::from)?;
        let longer = Open::of(&job, &none.blocks).longer(&none.staged, kind, &pipeline);
        let under = |recompute: Recompute| {
            job.parallel.recompute = recompute;
            let floor = self.stepped(&job)?.floor();
            Ok(Tried { bytes: floor.bytes, of: (job.parallel.clone(), floor) })
        };
        let is_too_slow = |chosen: &[usize]| longer.seconds(|block| choices.least(chosen, block)) > enough;
        fitting(&choices, none.floor().bytes, room, under, is_too_slow)
    }

    /// Best choices of values to recompute, for `runs` instances of each block.
    fn choices(&self, job: &Job<'_>, runs: &[f64]) -> Result<Arc<Frontier>, Error> {
        let key = (BlockKey::of(&job.parallel, &job.machine)?, runs.iter().map(|runs| runs.to_bits()).collect());
        self.known.choices.get(&key, || self.estimator.in_shape(job, Part::All, |model, _| choices(job, model, runs)))
    }

    /// The configuration with the fastest choice of values to recompute while the rest is offloaded, if host memory holds the
    /// rest. Returns `None` if recomputing nothing is fastest.
    fn hosted(&self, parallel: &ParallelConfig) -> Result<Option<(ParallelConfig, Floor)>, Error> {
        let job = self.job(ParallelConfig { recompute: Recompute::None, offload: false, ..parallel.clone() });
        let (key, all) = self.blocks(&job)?;
        let names = self.known.hosted.get(&key, || {
            let each = self.choices_of_each(&job, &key)?;
            let seconds = |block: usize, again: &Again| {
                hosted(&all.profiles[block], [again.bytes, again.seconds], &job.machine).iter().sum::<f64>()
            };
            self.estimator.in_shape(&job, Part::All, |model, _| fastest(&job, model, &each, seconds))
        })?;
        let mut job = self.job(ParallelConfig { recompute: Recompute::None, ..parallel.clone() });
        let mut under = |recompute: Recompute| {
            job.parallel.recompute = recompute;
            let stepped = self.stepped(&job)?;
            Ok::<_, Error>((
                Tried { bytes: fullest_host(&stepped.memory), of: (job.parallel.clone(), stepped.floor()) },
                stepped,
            ))
        };
        let room = self.machine(parallel.devices()).cluster.host_memory().unwrap_or(f64::INFINITY);
        if !names.is_empty() {
            let fastest = under(Recompute::Selective(names.to_vec()))?.0;
            if fastest.bytes <= room {
                return Ok(Some(fastest.of));
            }
        }
        let (none, stepped) = under(Recompute::None)?;
        if none.bytes <= room {
            return Ok(None);
        }
        let runs = crowded(&stepped.staged, &stepped.memory, |rank| rank.host, &stepped.blocks.outline, room);
        let choices = self.choices(&self.job(none.of.0.clone()), &runs)?;
        fitting(&choices, none.bytes, room, |recompute| Ok(under(recompute)?.0), |_| false)
    }

    /// Stages in the order of their schedule.
    fn staged(
        &self,
        job: &Job<'_>,
        key: BlockKey,
        blocks: &Blocks,
        kind: &ScheduleKind,
        pipeline: &Pipeline,
    ) -> Result<Arc<Staged>, Error> {
        self.known.flows.get(&(job.pipeline_config(), key.rate), || {
            let starts = self.starts(job, key, blocks, pipeline)?;
            job.staged(blocks, &starts, (kind, pipeline), self.estimator.orders())
        })
    }

    /// Lower bound over all pipelines of configurations at least as fast as `fast`, with memory options left open. `slices`
    /// is the largest number of sequence slices of any order. If `room` (always the same value) is `None`, only the memory
    /// bound is computed.
    ///
    /// # Errors
    /// As [`Desk::price`].
    pub fn mean(&self, fast: &ParallelConfig, slices: u32, room: Option<f64>) -> Result<Floor, Error> {
        let of = || {
            let job = self.job(fast.clone());
            let blocks = self.blocks(&job)?.1;
            Ok(Open::of(&job, &blocks).mean(slices, room))
        };
        self.known.means.get(&MeanKey::of(fast, self.zero(fast), slices), of).map(|floor| *floor)
    }

    /// Lower bound on bytes over all pipelines and all numbers of micro-batches. The configurations shard their states as one
    /// of `shards`, and save no less than `small`.
    ///
    /// # Errors
    /// As [`Desk::price`].
    pub fn least_of_any(&self, small: &ParallelConfig, shards: &[ParallelConfig]) -> Result<f64, Error> {
        let small = self.blocks(&self.job(small.clone()))?.1;
        let mut least = f64::INFINITY;
        for parallel in shards {
            // With one micro-batch every ZeRO stage is the requested one.
            let job = Job { microbatches: 1, ..self.job(parallel.clone()) };
            least = least.min(Open::of(&job, &self.blocks(&job)?.1).least_of_any(&small));
        }
        Ok(least)
    }

    /// Lower bound on bytes over configurations that have the stages of `fast`, save no less than `small`, and shard their
    /// states as one of `shards`.
    ///
    /// # Errors
    /// As [`Desk::price`].
    pub fn least_bytes(
        &self,
        fast: &ParallelConfig,
        small: &ParallelConfig,
        shards: &[ParallelConfig],
    ) -> Result<f64, Error> {
        let job = self.job(fast.clone());
        let (key, blocks) = self.blocks(&job)?;
        let (kind, pipeline) = pipeline_of(fast, job.microbatches).map_err(CompileError::from)?;
        let starts = self.starts(&job, key, &blocks, &pipeline)?;
        let small = self.blocks(&self.job(small.clone()))?.1;
        Ok(Open::of(&job, &blocks).least_bytes(&small, &starts, (kind, &pipeline), shards))
    }

    /// Lower bound over all pipelines, for configurations whose micro-batches take a share of the work of this large one.
    ///
    /// # Errors
    /// As [`Desk::price`].
    pub fn means_of_large(
        &self,
        fast: &[ParallelConfig],
        (large, share): (&ParallelConfig, f64),
        slices: u32,
        room: Option<f64>,
    ) -> Result<Vec<Floor>, Error> {
        let blocks = self.blocks(&self.job(large.clone()))?.1.part(share);
        let of = |parallel: &ParallelConfig| Open::of(&self.job(parallel.clone()), &blocks).mean(slices, room);
        Ok(fast.iter().map(of).collect())
    }

    /// Seconds of the work of a configuration's stages and of the critical path through them, in a schedule of its order.
    ///
    /// # Errors
    /// As [`Desk::price`].
    pub fn rough(&self, parallel: &ParallelConfig) -> Result<f64, Error> {
        let job = self.job(parallel.clone());
        let (key, blocks) = self.blocks(&job)?;
        let (kind, pipeline) = pipeline_of(parallel, job.microbatches).map_err(CompileError::from)?;
        let starts = self.starts(&job, key, &blocks, &pipeline)?;
        Ok(Open::of(&job, &blocks).rough(&starts, kind, &pipeline))
    }

    /// Lower bound over configurations at least as fast as `fast`, with memory options left open: recomputation and
    /// offloading do not change the stages.
    ///
    /// # Errors
    /// As [`Desk::price`].
    pub fn floor(&self, fast: &ParallelConfig, ask: &Ask) -> Result<Floor, Error> {
        let job = self.job(fast.clone());
        let (key, blocks) = self.blocks(&job)?;
        let (kind, pipeline) = pipeline_of(fast, job.microbatches).map_err(CompileError::from)?;
        let starts = self.starts(&job, key.clone(), &blocks, &pipeline)?;
        let open = Open::of(&job, &blocks);
        // If everything is saved, the bound is known from before the shards were decided.
        if let Ask::Seconds { enough, .. } = ask
            && fast.recompute != Recompute::None
        {
            let rough = open.rough(&starts, kind, &pipeline);
            if rough > *enough {
                return Ok(Floor { seconds: rough, bytes: 0.0 });
            }
        }
        let within = match ask {
            Ask::Seconds { enough, .. } => *enough,
            Ask::Bytes => f64::INFINITY,
        };
        let mut staged = open.staged(&starts, (kind, &pipeline), |loads| job.hops(loads, &pipeline), within);
        let mut order = None;
        if let Ask::Seconds { enough, is_ordered: true, .. } = ask
            && staged.seconds <= *enough
            && kind.has_fixed_order()
        {
            // The same without recomputation or offloading: one cached result serves all.
            let plain = self.job(ParallelConfig { offload: false, recompute: Recompute::None, ..fast.clone() });
            let (key, blocks) = self.blocks(&plain)?;
            order = Some(self.staged(&plain, key, &blocks, kind, &pipeline)?);
        }
        let path = order.as_ref().and_then(|staged| staged.path());
        if let Some(path) = path {
            open.along(&mut staged, path);
        }
        let seconds = staged.seconds;
        match ask {
            Ask::Bytes => Ok(Floor { seconds, bytes: staged.bytes() }),
            Ask::Seconds { means, .. } if means.are_none() => Ok(Floor { seconds, bytes: staged.bytes() }),
            Ask::Seconds { enough, room, means, .. } => {
                let fits = means.hosts.contains(&false) && means.parts && staged.bytes() <= *room;
                if fits || seconds > *enough {
                    return Ok(Floor { seconds, bytes: 0.0 });
                }
                let ways = self.ways(&job, key, &blocks)?;
                let fitted = open.fitted(&staged, &starts, (kind, &pipeline), path, (&ways, means), (*room, within));
                Ok(Floor { seconds: seconds.max(fitted), bytes: 0.0 })
            }
        }
    }

    /// Options of blocks that save everything to save less.
    fn ways(&self, job: &Job<'_>, key: BlockKey, all: &Blocks) -> Result<Arc<Ways>, Error> {
        self.known.ways.get(&key, || {
            let parallel = ParallelConfig { recompute: Recompute::Full(None), ..job.parallel.clone() };
            let whole = self.blocks(&self.job(parallel))?.1;
            let parts = self.choices_of_each(job, &key)?;
            Ok(Ways::of(all, &parts, &whole, &job.machine, self.request.lengths.is_empty()))
        })
    }

    /// Values that an instance of each block may recompute.
    fn choices_of_each(&self, job: &Job<'_>, key: &BlockKey) -> Result<Arc<Vec<Vec<Again>>>, Error> {
        self.known.each.get(key, || self.estimator.in_shape(job, Part::All, |model, _| choices_of_each(job, model)))
    }

    /// Lower bound on step time, in seconds, over all pipelines, if blocks take as long as in this configuration without a
    /// pipeline.
    ///
    /// # Errors
    /// As [`Desk::price`].
    pub fn work_of(&self, parallel: ParallelConfig) -> Result<f64, Error> {
        let job = self.job(parallel);
        let (parallel, blocks) = (&job.parallel, self.blocks(&job)?.1);
        let passes = self.request.global_batch as f64 / (parallel.dp * parallel.mbs) as f64;
        Ok(work_of(&blocks, passes, &job.machine) * job.machine.stragglers(parallel.devices()))
    }

    /// Work of a sequence, and the parameters.
    ///
    /// # Errors
    /// The model cannot be planned for one device.
    pub fn work(&self) -> Result<Work, Error> {
        let batch = match self.source() {
            ModelSource::Config { .. } => 1,
            ModelSource::Text { file, .. } => {
                file.model.dims.values().find(|dim| dim.name == "b").map_or(1, |dim| dim.size)
            }
        };
        Ok(Work::of(&self.estimator.priced_by_shape(&self.job(ParallelConfig::default()), Which::All)?, batch))
    }
}

/// The cluster for each number of cores per device, if its devices share cores, for all numbers of devices in the range.
fn dealt(cluster: &Cluster, [least, most]: [u64; 2]) -> HashMap<u64, Cluster> {
    let mut clusters = HashMap::new();
    let mut devices = least;
    while let Some(cores) = cluster.cores.filter(|_| devices <= most) {
        let each = cluster.cores_each(devices);
        clusters.entry(each).or_insert_with(|| cluster.dealt(devices));
        // The next number of devices that leaves each device fewer cores.
        devices = if each > 1 { cores / each + 1 } else { most + 1 };
    }
    clusters
}
