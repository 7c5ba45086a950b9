//! Estimates of single requests, and the caches that requests share.

use super::blocks::{Blocks, Outline, Planned, Which, check, plan};
use super::desk::Known;
use super::floor::Floor;
use super::keys::{BlocksKey, CutKey, FlowKey, PlanKey, of_profiles, spreads};
use super::memo::{Memo, Once};
use super::memory::{GIB, fullest_device, holds, host_holds};
use super::order::Orders;
use super::ordered::Ordered;
use super::path::Path;
use super::pipeline::{Flow, drawn_costs, flow};
use super::place::{check_slices, config_on, impossible, neighbours};
use super::replicas::Replicas;
use super::report::{Comm, EstimateReport, Memory, Mesh, Predicted, Recomputed, SCHEMA, StageMemory, StageReport};
use super::request::EstimateRequest;
use super::resize::{DimSizes, Part, Plan, Sizes, Template, Unplanned};
use super::shape::Shape;
use super::stages::{Load, loads, starts};
use super::step::{Step, tied};
use crate::beyond::beyond;
use compiler::batch::microbatches;
use compiler::compile::check_text;
use compiler::error::Error;
use compiler::machine_source;
use compiler::model_source::ModelSource;
use compiler::pipeline::CompileError;
use cost::{Cluster, Format, Machine, Recipe, Stack, Talk, recomputed};
use ir::graph::{Block, Model};
use ir::options::{ParallelConfig, Recompute};
use ir::types::DType;
use planner::reshard::ReshardCache;
use scheduler::placement::Pipeline;
use scheduler::predict::pipeline_of;
use scheduler::schedules::ScheduleKind;
use std::sync::{Arc, Mutex, PoisonError};
use view::report::ScheduleRequest;

/// Predicts steps. What configurations have in common is worked out once: keep it for many, and share it among threads.
#[derive(Default)]
pub struct Estimator {
    plans: Arc<Plans>,
    prices: Arc<Prices>,
    clusters: Memo<String, Cluster>,
    stacks: Arc<Memo<String, Stack>>,
    /// What desks have worked out of the last request for many configurations.
    last: Mutex<Option<(EstimateRequest, Arc<Known>)>>,
}

/// What depends on cluster and stack by their names, but not on how much memory devices have.
#[derive(Default)]
struct Prices {
    blocks: Memo<BlocksKey, Blocks>,
    cuts: Memo<CutKey, Vec<usize>>,
    flows: Memo<FlowKey, Staged>,
}

/// What depends on neither cluster nor stack.
#[derive(Default)]
struct Plans {
    sources: Memo<String, ModelSource>,
    planned: Memo<PlanKey, Planned>,
    /// The sizes of a model's dims.
    dims: Memo<(String, Unplanned), DimSizes>,
    /// One of each shape.
    shapes: Once<(String, DType, Shape, Part), Template>,
    orders: Orders,
    /// Of marked models.
    ways: ReshardCache,
}

/// Stages and their order.
pub(super) struct Staged {
    pub(super) loads: Vec<Load>,
    /// Seconds between each stage and the next.
    hops: Vec<f64>,
    pub(super) flow: Flow,
}

impl Staged {
    /// The first run of each stage.
    pub(super) fn starts(&self) -> Vec<usize> {
        self.loads.iter().map(|load| load.runs.start).collect()
    }

    /// What the end follows from, if that is known.
    pub(super) fn path(&self) -> Option<&Path> {
        self.flow.path.as_ref()
    }
}

/// A configuration's step and memory, and what they follow from.
pub(super) struct Stepped {
    pub(super) blocks: Arc<Blocks>,
    pub(super) staged: Arc<Staged>,
    pub(super) step: Step,
    pub(super) memory: Vec<StageMemory>,
}

impl Stepped {
    /// Whether the host's memory holds what is offloaded.
    pub(super) fn fits_host(&self, cluster: &Cluster) -> bool {
        host_holds(cluster, &self.memory)
    }

    /// Seconds of the step, and bytes of the fullest device.
    pub(super) fn floor(&self) -> Floor {
        Floor { seconds: self.step.seconds, bytes: fullest_device(&self.memory) }
    }
}

/// What the names of a request stand for.
pub(super) type Named = (Arc<Cluster>, Arc<Stack>, Arc<ModelSource>);

/// A request whose names are found.
pub(super) struct Job<'a> {
    pub(super) request: &'a EstimateRequest,
    pub(super) parallel: ParallelConfig,
    pub(super) machine: Machine<'a>,
    pub(super) source: &'a ModelSource,
    pub(super) microbatches: u32,
}

impl Estimator {
    /// One that has worked out nothing.
    pub fn new() -> Estimator {
        Estimator::default()
    }

    /// One that shares the planned models, and takes this stack under its name.
    #[must_use]
    pub fn with_stack(&self, stack: Stack) -> Estimator {
        let stacks = Arc::new(Memo::with(stack.name.clone(), stack));
        Estimator { plans: self.plans.clone(), stacks, ..Estimator::default() }
    }

    /// One that shares the planned models, and takes this cluster under its name.
    #[must_use]
    pub fn with_cluster(&self, cluster: Cluster) -> Estimator {
        let clusters = Memo::with(cluster.name.clone(), cluster);
        Estimator { plans: self.plans.clone(), clusters, ..Estimator::default() }
    }

    /// One that shares all prices, and gives each device of the cluster of a name so many bytes of memory.
    ///
    /// # Errors
    /// As [`Estimator::cluster`].
    pub fn with_memory(&self, name: &str, bytes: u64) -> Result<Estimator, Error> {
        let mut cluster = Cluster::clone(&*self.cluster(name)?);
        cluster.device.memory = bytes;
        let (plans, prices, stacks) = (self.plans.clone(), self.prices.clone(), self.stacks.clone());
        let clusters = Memo::with(name.to_string(), cluster);
        Ok(Estimator { plans, prices, stacks, clusters, last: Mutex::default() })
    }

    /// What desks have worked out of a request: of one after another that are the same, all of it.
    pub(super) fn known(&self, request: &EstimateRequest) -> Arc<Known> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(of, _)| of != request) {
            *last = Some((request.clone(), Arc::default()));
        }
        last.as_ref().map(|(_, known)| Arc::clone(known)).unwrap_or_default()
    }

    /// The cluster of a name: one that it was given, a preset, or a file.
    ///
    /// # Errors
    /// There is none of this name, or the file cannot be read or used.
    pub fn cluster(&self, name: &str) -> Result<Arc<Cluster>, Error> {
        self.clusters.get(&name.to_string(), || machine_source::cluster(name))
    }

    /// The stack of a name: one that it was given, a preset, or a file.
    ///
    /// # Errors
    /// There is none of this name, or the file cannot be read or used.
    pub fn stack(&self, name: &str) -> Result<Arc<Stack>, Error> {
        self.stacks.get(&name.to_string(), || machine_source::stack(name))
    }

    /// What a step of the request takes. With `recompute=auto`, under the fastest recomputation that fits, which the report's
    /// configuration names.
    ///
    /// # Errors
    /// A name is not known, or the configuration fits neither the devices nor the model.
    pub fn estimate(&self, request: &EstimateRequest) -> Result<EstimateReport, Error> {
        self.with_job(request, |job| match job.parallel.recompute {
            Recompute::Auto => self.least(job),
            _ => self.predict(&job),
        })
    }

    /// The pipeline of a request with what each of its stages takes, in ms and GiB, to be drawn: of at most so many
    /// micro-batches.
    ///
    /// # Errors
    /// As [`estimate`](Estimator::estimate).
    pub fn schedule(&self, request: &EstimateRequest, most: u32) -> Result<ScheduleRequest, Error> {
        self.with_job(request, |job| {
            let ParallelConfig { pp, vp, group, slices, ref schedule, .. } = job.parallel;
            let Stepped { staged, .. } = self.stepped(&job)?;
            Ok(ScheduleRequest {
                kind: schedule.clone(),
                stages: pp as u32,
                microbatches: job.microbatches.min(most),
                chunks: vp,
                group,
                slices,
                costs: drawn_costs(&staged.loads, &staged.hops, f64::from(slices.unwrap_or(1))),
                ..ScheduleRequest::default()
            })
        })
    }

    /// What is done with a request whose names are found.
    fn with_job<T>(
        &self,
        request: &EstimateRequest,
        then: impl FnOnce(Job<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        request.check()?;
        let parallel = config_on(&request.parallel, request.gpus)?;
        let (cluster, stack, source) = self.named(request)?;
        let stack = request.allowed(stack);
        let recipe = request.recipe(&stack)?;
        let microbatches = microbatches(request.global_batch, parallel.dp.saturating_mul(parallel.mbs))?;
        let cluster = cluster.dealt(parallel.devices()).with_margin(request.memory_margin);
        let machine = Machine { cluster: &cluster, stack: &stack, recipe: &recipe };
        then(Job { request, parallel, machine, source: &source, microbatches })
    }

    /// What the names of a request stand for.
    pub(super) fn named(&self, request: &EstimateRequest) -> Result<Named, Error> {
        let (cluster, stack) = (self.cluster(&request.cluster)?, self.stack(&request.stack)?);
        let open = || {
            let source = ModelSource::open(&request.model)?;
            // What does not compile is refused as `compile` refuses it; then what does, but states what is decided here.
            check_text(&source)?;
            source.check_open().map(|()| source)
        };
        let source = self.plans.sources.get(&request.model, open)?;
        Ok((cluster, stack, source))
    }

    /// The step of a job under a recomputation, which it keeps.
    pub(super) fn under(&self, job: &mut Job<'_>, recompute: &Recompute) -> Result<Stepped, Error> {
        job.parallel.recompute.clone_from(recompute);
        self.stepped(job)
    }

    /// The model on the configuration's axes below pp.
    pub(super) fn planned(&self, job: &Job<'_>, key: &BlocksKey) -> Result<Arc<Planned>, Error> {
        let Job { request, parallel, source, .. } = job;
        self.plans.planned.get(&key.plan, || plan(source, parallel, request.seq, key.plan.dtype()))
    }

    /// The model's blocks on the configuration's axes below pp, and what they cost.
    fn priced(&self, job: &Job<'_>, key: &BlocksKey) -> Result<Arc<Blocks>, Error> {
        let Job { request, parallel, machine, .. } = job;
        self.prices.blocks.get(key, || {
            let planned = self.planned(job, key)?;
            check(&planned.model, parallel)?;
            let share = request.attention_share();
            Ok(Blocks::of(&planned.model, &planned.outline, parallel, machine, share, Which::All))
        })
    }

    /// As [`Estimator::priced`] of such blocks, by a plan of another configuration where one of the same shape is known. Nothing is
    /// kept.
    pub(super) fn priced_by_shape(&self, job: &Job<'_>, which: Which<'_>) -> Result<Blocks, Error> {
        let Job { request, parallel, machine, .. } = job;
        let part = if let Which::Experts(_) = which { Part::Experts } else { Part::All };
        self.in_shape(job, part, |model, outline| {
            // What the blocks with experts do not have others may have, which have been asked.
            if part == Part::All {
                check(model, parallel)?;
            }
            Ok(Blocks::of(model, outline, parallel, machine, request.attention_share(), which))
        })?
    }

    /// What is done with a part of the model on the configuration's axes below pp, by a plan of another configuration where one of the same
    /// shape is known.
    pub(super) fn in_shape<T>(
        &self,
        job: &Job<'_>,
        part: Part,
        then: impl FnOnce(&Model, &Arc<Outline>) -> T,
    ) -> Result<T, Error> {
        let (plan, sizes) = self.planned_by_shape(job, part)?;
        Ok(plan.in_sizes(&sizes, then))
    }

    /// That plan, which two configurations share if they have the same statements, changes of configuration among them; and the sizes.
    pub(super) fn planned_by_shape(&self, job: &Job<'_>, part: Part) -> Result<(Arc<Plan>, Sizes), Error> {
        let key = job.blocks_key()?;
        let Job { request, parallel, .. } = job;
        let dtype = key.plan.dtype();
        let unplanned = Unplanned::of(&key.plan.parallel, request.seq, dtype);
        let dims = self.plans.dims.get(&(request.model.clone(), unplanned), || unplanned.dims(job.source))?;
        let sizes = Sizes::of(&key.plan.parallel, dims)?;
        let shape = (request.model.clone(), dtype, sizes.shape(parallel, job.source.is_built()), part);
        let make = || Template::of(job.source, parallel, unplanned, part);
        let plan = self.plans.shapes.get(&shape, make)?.plan(parallel, &sizes, &self.plans.ways)?;
        Ok((plan, sizes))
    }

    /// The first run of each stage.
    fn starts(
        &self,
        job: &Job<'_>,
        key: &BlocksKey,
        blocks: &Blocks,
        pipeline: &Pipeline,
    ) -> Result<Arc<Vec<usize>>, Error> {
        let ParallelConfig { pp, vp, schedule, stages, .. } = &job.parallel;
        let cut = (key.clone(), *pp, *vp, schedule.clone(), stages.clone());
        let by = job.machine.stack.facts.cut;
        self.prices.cuts.get(&cut, || starts(blocks, &job.parallel, by, pipeline))
    }

    /// The orders that it keeps.
    pub(super) fn orders(&self) -> &Orders {
        &self.plans.orders
    }

    /// The step, and the memory of each pipeline rank.
    pub(super) fn stepped(&self, job: &Job<'_>) -> Result<Stepped, Error> {
        let key = job.blocks_key()?;
        let blocks = self.priced(job, &key)?;
        let key = FlowKey { blocks: key, parallel: job.pipeline_config(), microbatches: job.microbatches };
        let staged = self.prices.flows.get(&key, || {
            let (kind, pipeline) = pipeline_of(&job.parallel, job.microbatches).map_err(CompileError::from)?;
            check_slices(job.request.seq, pipeline.slices)?;
            let starts = self.starts(job, &key.blocks, &blocks, &pipeline)?;
            job.staged(&blocks, &starts, (kind, &pipeline), self.orders())
        })?;
        let (step, memory) = job.step(&blocks, &staged);
        Ok(Stepped { blocks, staged, step, memory })
    }

    fn predict(&self, job: &Job<'_>) -> Result<EstimateReport, Error> {
        let stepped = self.stepped(job)?;
        Ok(job.report(&*self.planned(job, &job.blocks_key()?)?, stepped))
    }
}

impl Job<'_> {
    /// Stages that begin so, in the order of the schedule.
    pub(super) fn staged(
        &self,
        blocks: &Blocks,
        starts: &[usize],
        (kind, pipeline): (&ScheduleKind, &Pipeline),
        orders: &Orders,
    ) -> Result<Staged, Error> {
        let mut loads =
            loads(blocks, &self.parallel, starts, &Replicas::new(&self.parallel, self.microbatches, &self.machine));
        let hops = self.hops(&mut loads, pipeline);
        let flow = flow(&loads, &hops, kind, pipeline, orders)?;
        Ok(Staged { loads, hops, flow })
    }

    /// The step of stages in their order, and the memory of each pipeline rank.
    pub(super) fn step(&self, blocks: &Blocks, staged: &Staged) -> (Step, Vec<StageMemory>) {
        let Job { parallel, machine, .. } = self;
        let replicas = Replicas::new(parallel, self.microbatches, machine);
        let Staged { loads, flow, .. } = staged;
        let ordered = Ordered { parallel, replicas: &replicas, loads, flow };
        (ordered.step(self.tied(blocks, loads)), ordered.memory())
    }

    pub(super) fn blocks_key(&self) -> Result<BlocksKey, Error> {
        let ParallelConfig { tp_overlap, cp_kind, offload, ref recompute, .. } = self.parallel;
        let together = self.parallel.together().map_err(|why| impossible(why.to_string()))?;
        let ParallelConfig { dp, tp, cp, ep, etp, sp, mbs, rank_order, .. } = together;
        let below = ParallelConfig { dp, tp, cp, ep, etp, sp, mbs, rank_order, ..ParallelConfig::default() };
        let recompute = of_profiles(recompute);
        let request = self.request;
        let word = |word: &Option<String>| word.clone().unwrap_or_default();
        Ok(BlocksKey {
            spread: spreads(&self.parallel, dp),
            parallel: ParallelConfig { tp_overlap, cp_kind, offload, recompute, ..below.clone() },
            plan: PlanKey {
                model: request.model.clone(),
                parallel: below,
                seq: request.seq,
                half: self.machine.recipe.parameter < 4.0,
            },
            cluster: request.cluster.clone(),
            rate: self.machine.cluster.device.flops_f32.to_bits(),
            stack: request.stack.clone(),
            formats: [
                request.precision.clone(),
                word(&request.grad_dtype),
                word(&request.master),
                request.optimizer.clone(),
            ],
            lengths: request.lengths.clone(),
        })
    }

    /// What the pipeline depends on: on ZeRO only from stage 2 on, where each micro-batch waits for data-parallel ranks.
    pub(super) fn pipeline_config(&self) -> ParallelConfig {
        let parallel = self.parallel.clone();
        if Replicas::new(&parallel, self.microbatches, &self.machine).zero < 2 {
            ParallelConfig { zero: 0, shard: None, dp_overlap: None, ..parallel }
        } else {
            parallel
        }
    }

    /// Seconds between each stage and the next. Where a stack sends and receives at once, both ends wait for half of it
    /// themselves; one that hides messages does so where a rank has another stage to go on with.
    pub(super) fn hops(&self, loads: &mut [Load], pipeline: &Pipeline) -> Vec<f64> {
        let facts = &self.machine.stack.facts;
        let goes_on = self.machine.stack.hides("p2p") && pipeline.stages() > pipeline.ranks;
        let shown = if goes_on { 1.0 - self.machine.stack.fitted.overlap.value } else { 1.0 };
        let neighbours = neighbours(&self.parallel);
        // Most stages send as much.
        let mut last = (f64::NAN, 0.0);
        let send = |load: &Load| {
            if load.boundary != last.0 {
                let seconds = self.machine.talk(Talk::Send, load.boundary, neighbours);
                last = (load.boundary, shown * (facts.hop + seconds));
            }
            last.1
        };
        let mut hops: Vec<f64> = loads.iter().take(loads.len() - 1).map(send).collect();
        if facts.hop > 0.0 {
            for (stage, load) in loads.iter_mut().enumerate() {
                let before = stage.checked_sub(1).map_or(0.0, |hop| hops[hop]);
                load.messages = (before + hops.get(stage).copied().unwrap_or(0.0)) / 2.0;
            }
            hops.iter_mut().for_each(|hop| *hop /= 2.0);
        }
        hops
    }

    /// Seconds of parameters that stages on different ranks hold.
    fn tied(&self, blocks: &Blocks, loads: &[Load]) -> f64 {
        let apart = blocks.outline.tied.iter().filter(|tied| {
            let stage = |run: &usize| loads.iter().position(|load| load.runs.contains(run));
            tied.runs.iter().map(stage).any(|at| at != stage(&tied.runs[0]))
        });
        if self.parallel.pp < 2 {
            0.0
        } else {
            tied(apart.map(|tied| tied.elements).sum(), &self.parallel, &self.machine)
        }
    }

    pub(super) fn report(&self, planned: &Planned, stepped: Stepped) -> EstimateReport {
        let Job { request, parallel, machine, .. } = self;
        let Stepped { blocks, staged, step, memory: per_stage } = stepped;
        let Recipe { products, parameter, gradient, master, states, .. } = machine.recipe;
        let device = &machine.cluster.device;
        let peak = device.peak(*products).or(device.peak(Format::Half)).unwrap_or(device.flops_f32);
        let microbatches = f64::from(self.microbatches);
        let batches = microbatches * parallel.dp as f64;
        let work = Work::of(&blocks, &staged.loads);
        let rate = |flops: f64| flops * batches / (step.seconds * parallel.devices() as f64 * peak);
        let tokens = request.global_batch as f64 * request.seq as f64;
        let [low, high] = machine.stack.residual.map(|log| step.seconds * log.exp());
        let shares = step.shares;
        let worst_rank =
            (0..per_stage.len()).max_by(|&a, &b| per_stage[a].reserved.total_cmp(&per_stage[b].reserved)).unwrap_or(0);
        let usable = device.memory as f64 / GIB;
        let fits = holds(machine.cluster, &per_stage);
        EstimateReport {
            schema: SCHEMA.to_string(),
            tool_version: env!("CARGO_PKG_VERSION").to_string(),
            status: "ok".to_string(),
            inputs: (*request).clone(),
            mesh: mesh(parallel),
            parallel: parallel.clone(),
            beyond_stack: beyond(parallel, machine.stack),
            recomputed: self.recomputed(planned),
            stages: staged.loads.iter().map(|load| self.stage(&blocks, load)).collect(),
            predicted: Predicted {
                step_time_s: step.seconds,
                interval_s: [low, high],
                tokens_per_s_per_gpu: tokens / (step.seconds * parallel.devices() as f64),
                mfu: rate(work.causal),
                mfu_noncausal: rate(work.whole),
                hfu: rate(work.executed),
                flops_per_token: work.causal * batches / tokens,
                peak_flops: peak,
                bytes_per_parameter: parameter + gradient + master + states,
                parameters: blocks.outline.parameters,
                microbatches: self.microbatches,
                dropped: planned.dropped(machine.stack),
                bubble: staged.flow.bubble,
                time_s: shares,
                exposed_comm_s: Comm { tp: shares.tp, cp: shares.cp, ep: shares.ep, dp: shares.dp, pp: shares.p2p },
                memory_gib: Memory {
                    total: per_stage[worst_rank].reserved,
                    worst_rank,
                    capacity: usable / (1.0 - request.memory_margin),
                    usable,
                    host_capacity: machine.cluster.host_memory().map(|memory| memory / GIB),
                    per_stage,
                },
                fits,
            },
        }
    }

    /// What each kind of layer makes again by the names of values.
    fn recomputed(&self, planned: &Planned) -> Vec<Recomputed> {
        let model = &planned.model;
        let of = |block: &Block| {
            let values = recomputed(model, block, &self.parallel, &self.machine).into_iter();
            let name = block.name.clone();
            values.map(move |it| Recomputed {
                layer: name.clone(),
                value: it.name,
                bytes_saved: it.bytes,
                time_s: it.seconds,
            })
        };
        model.blocks.values().flat_map(of).collect()
    }

    fn stage(&self, blocks: &Blocks, load: &Load) -> StageReport {
        let name = |run: usize| blocks.outline.names.get(run).cloned().unwrap_or_default();
        StageReport {
            first: name(load.runs.start),
            last: name(load.runs.end.saturating_sub(1)),
            variant: self.parallel.recompute.to_string(),
            whole: load.whole,
        }
    }
}

fn mesh(parallel: &ParallelConfig) -> Mesh {
    let ParallelConfig { pp, dp, cp, tp, ep, etp, ref rank_order, .. } = *parallel;
    Mesh { devices: parallel.devices(), rank_order: rank_order.to_vec(), pp, dp, cp, tp, ep, etp }
}

/// FLOPs of a micro-batch of one data-parallel rank: forward once and backward twice.
struct Work {
    /// Causal attention halved.
    causal: f64,
    /// Attention whole.
    whole: f64,
    /// That kernels execute, with what is computed again.
    executed: f64,
}

impl Work {
    fn of(blocks: &Blocks, loads: &[Load]) -> Work {
        let mut work = Work { causal: 0.0, whole: 0.0, executed: 0.0 };
        for load in loads {
            let mut whole = load.whole;
            for run in load.runs.clone() {
                let block = blocks.outline.runs[run];
                let profile = &blocks.profiles[block];
                work.causal += 3.0 * profile.flops;
                work.whole += 3.0 * profile.flops_noncausal;
                let again = blocks.again.as_ref().filter(|_| blocks.outline.layers.contains(&run) && whole > 0);
                whole -= usize::from(again.is_some());
                work.executed += again.unwrap_or(&blocks.profiles)[block].executed.iter().sum::<f64>();
            }
        }
        work
    }
}
