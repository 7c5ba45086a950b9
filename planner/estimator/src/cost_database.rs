//! The cost database: results of one request's model, platform and number formats, for all configurations. Each result is a
//! named query, whose key is a projection of the configuration (`projection`).
//!
//! | query | key | answer |
//! |---|---|---|
//! | `block_costs` | [`BlockConfig`] | costs of each block |
//! | `dense_costs` | [`BlockConfig`] | costs of the blocks without experts |
//! | `partitions` | [`PartitionConfig`] | first block instance of each stage |
//! | `timelines` | [`PipelineConfig`] | stages in their order |
//! | `simulated` | [`PipelineConfig`] | seconds and critical path of these |
//! | `promising_stages` | [`PipelineConfig`] | boundaries that may be faster than the default ones |
//! | `faster_stages` | [`PipelineConfig`] | boundaries that are faster than the default ones |
//! | `frontiers` | [`BlockConfig`], instances of each block | choices of values to recompute |
//! | `block_frontiers` | [`BlockConfig`] | the same for one instance of each block |
//! | `dense_frontiers` | [`BlockConfig`] | the same for the blocks without experts |
//! | `offload_choices` | [`BlockConfig`] | values to recompute if the rest is offloaded |
//! | `memory_options` | [`BlockConfig`] | options of blocks to save less |
//! | `average_ranks` | [`AverageRankConfig`] | lower bounds over all pipelines |
//!
//! No query sees the memory of devices and hosts, so requests that differ in these alone share all results.

use super::action_order::OrderCache;
use super::blocks::{BlockFilter, Blocks, KnownCosts, Outline, Planned, check};
use super::candidate::{Candidate, Simulated, Staged, Stepped};
use super::error::Error;
use super::faster_stages::{faster_stages, promising_stages};
use super::memory_fit::{RecomputeOptions, offloaded};
use super::model_plans::{ModelPlans, ModelTraits};
use super::path_platform::PathPlatform;
use super::pipeline::ScheduledPipeline;
use super::plan_template::{Part, Plan};
use super::projection::{
    AverageRankConfig, BlockConfig, CostContext, PartitionConfig, PipelineConfig, PlanConfig, PlanKey,
};
use super::recompute_choice::{BlockChoices, choices_of_each, fastest};
use super::relaxation::{Relaxation, StepCost};
use super::stages::{given_starts, is_even, starts};
use cost::{Cluster, Frontier, Platform, Profile, Recipe, RecomputeChoice, RecomputeCost, Stack, frontier};
use ir::graph::Model;
use ir::options::{Offload, Recompute};
use ir::types::DType;
use scheduler::placement::Pipeline;
use std::sync::Arc;
use support::query::Query;

/// Planning of the configurations of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Planning {
    /// Each by itself: slow, and independent of shape classes. Reports need such plans.
    Alone,
    /// By a plan of any configuration of the same shape class, resized.
    ByShape,
}

/// An answer that threads share, or why there is none.
type Answer<T> = Result<Arc<T>, Error>;

/// A query of the database.
type CostQuery<K, V> = Query<CostDatabase, K, V>;

/// Inputs of a request, and the queries on them.
pub(super) struct CostDatabase {
    planning: Planning,
    pub(super) plans: Arc<ModelPlans>,
    paths: PathPlatform,
    orders: Arc<OrderCache>,
    /// Without memory.
    cluster: Cluster,
    pub(super) stack: Arc<Stack>,
    pub(super) recipe: Recipe,
    context: CostContext,
    dtype: DType,
    clusters: CostQuery<u64, Arc<Cluster>>,
    block_costs: CostQuery<BlockConfig, Answer<Blocks>>,
    dense_costs: CostQuery<BlockConfig, Answer<Blocks>>,
    partitions: CostQuery<PartitionConfig, Answer<Vec<usize>>>,
    timelines: CostQuery<PipelineConfig, Answer<Staged>>,
    simulated: CostQuery<PipelineConfig, Answer<Simulated>>,
    promising_stages: CostQuery<PipelineConfig, Answer<Vec<Vec<u32>>>>,
    faster_stages: CostQuery<PipelineConfig, Answer<Vec<u32>>>,
    frontiers: CostQuery<(BlockConfig, Vec<u64>), Answer<Frontier>>,
    block_frontiers: CostQuery<BlockConfig, Answer<BlockChoices>>,
    dense_frontiers: CostQuery<BlockConfig, Answer<BlockChoices>>,
    offload_choices: CostQuery<BlockConfig, Answer<Vec<String>>>,
    memory_options: CostQuery<BlockConfig, Answer<RecomputeOptions>>,
    average_ranks: CostQuery<AverageRankConfig, Result<StepCost, Error>>,
    /// Properties of the model.
    pub(super) traits: ModelTraits,
}

/// Results that databases share.
pub(super) struct SharedResults {
    pub(super) plans: Arc<ModelPlans>,
    pub(super) paths: PathPlatform,
    pub(super) orders: Arc<OrderCache>,
}

impl CostDatabase {
    /// A database without results.
    ///
    /// # Errors
    /// A number format is not known, or the model cannot have the request's sequences.
    pub(super) fn new(
        context: &CostContext,
        planning: Planning,
        cluster: &Cluster,
        stack: Arc<Stack>,
        shared: SharedResults,
    ) -> Result<CostDatabase, Error> {
        let SharedResults { plans, paths, orders } = shared;
        let stack = context.allowed(stack);
        let traits = plans.traits(context.seq)?;
        let recipe = context.recipe(&stack)?;
        let mut cluster = cluster.clone();
        (cluster.device.memory, cluster.shared_memory) = (0, None);
        cluster.host.iter_mut().for_each(|host| host.memory = 0.0);
        Ok(CostDatabase {
            planning,
            plans,
            paths,
            orders,
            cluster,
            context: context.clone(),
            dtype: if recipe.parameter < 4.0 { DType::BF16 } else { DType::F32 },
            stack,
            recipe,
            clusters: Query::new(|database, cores| Arc::new(database.cluster.with_cores_each(*cores))),
            block_costs: Query::new(block_costs),
            dense_costs: Query::new(dense_costs),
            partitions: Query::new(partition),
            timelines: Query::new(timeline),
            simulated: Query::new(simulated),
            promising_stages: Query::new(promising_stages),
            faster_stages: Query::new(faster_stages),
            frontiers: Query::new(frontier_of),
            block_frontiers: Query::new(block_frontiers),
            dense_frontiers: Query::new(dense_frontiers),
            offload_choices: Query::new(offload_choice),
            memory_options: Query::new(memory_options),
            average_ranks: Query::new(average_rank),
            traits,
        })
    }

    /// The model planned by itself under a configuration.
    ///
    /// # Errors
    /// The configuration does not fit the model.
    pub(super) fn planned(&self, config: &PlanConfig) -> Answer<Planned> {
        self.plans.planned(&self.plan_key(config), &self.paths)
    }

    /// The plan that a configuration shares with all that have the same statements.
    ///
    /// # Errors
    /// As [`CostDatabase::planned`].
    pub(super) fn shared_plan(&self, config: &BlockConfig) -> Answer<Plan> {
        let part = if self.dense_of(config)?.is_some() { Part::Experts } else { Part::All };
        Ok(Arc::clone(&self.plans.of_shape(&self.plan_key(&config.plan), part, &self.paths)?.plan))
    }

    /// Costs of the blocks under a configuration.
    ///
    /// # Errors
    /// As [`CostDatabase::planned`].
    pub(super) fn block_costs(&self, config: &BlockConfig) -> Answer<Blocks> {
        self.block_costs.get(self, config)
    }

    /// First block instance of each stage. `given` has those of a configuration that states them.
    ///
    /// # Errors
    /// The stages do not fit the model.
    pub(super) fn stage_starts(
        &self,
        given: &[u32],
        config: &BlockConfig,
        blocks: &Blocks,
        pipeline: &Pipeline,
    ) -> Answer<Vec<usize>> {
        if !given.is_empty() {
            return given_starts(blocks, given, pipeline).map(Arc::new);
        }
        let cut = self.stack.traits.cut;
        if is_even(blocks, cut, pipeline.stages()) {
            return starts(blocks, cut, pipeline).map(Arc::new);
        }
        let Pipeline { placement, ranks, chunks, .. } = *pipeline;
        self.partitions.get(self, &PartitionConfig { blocks: config.keeping_all(), placement, ranks, chunks })
    }

    /// Stages in the order of their schedule.
    ///
    /// # Errors
    /// The configuration does not fit the model, or its schedule does not suit it.
    pub(super) fn timeline(&self, config: &PipelineConfig) -> Answer<Staged> {
        self.timelines.get(self, config)
    }

    /// Seconds and critical path of stages in the order of their schedule.
    ///
    /// # Errors
    /// As [`CostDatabase::timeline`].
    pub(super) fn simulated(&self, config: &PipelineConfig) -> Answer<Simulated> {
        self.simulated.get(self, config)
    }

    /// Boundaries, for all stages but the first, of which [`CostDatabase::faster_stages`] are the fastest ones.
    ///
    /// # Errors
    /// As [`CostDatabase::timeline`].
    pub(super) fn promising_stages(&self, config: &PipelineConfig) -> Answer<Vec<Vec<u32>>> {
        self.promising_stages.get(self, config)
    }

    /// Boundaries with which the step is shorter than with the default ones, for all stages but the first; empty if none are known.
    ///
    /// # Errors
    /// As [`CostDatabase::timeline`].
    pub(super) fn faster_stages(&self, config: &PipelineConfig) -> Answer<Vec<u32>> {
        self.faster_stages.get(self, config)
    }

    /// Calls `then` with the configuration on its platform.
    pub(super) fn in_candidate<T>(&self, config: &PipelineConfig, then: impl FnOnce(Candidate<'_>) -> T) -> T {
        let PipelineConfig { ref parallel, microbatches, cores_each } = *config;
        let cluster = self.clusters.get(self, &cores_each);
        let platform = self.platform(&cluster);
        then(Candidate { parallel: parallel.clone(), platform, microbatches, cores_each, budget: 0.0 })
    }

    /// The step of a candidate, and the memory of each pipeline rank.
    ///
    /// # Errors
    /// As [`CostDatabase::timeline`].
    pub(super) fn stepped(&self, candidate: &Candidate<'_>) -> Result<Stepped, Error> {
        let blocks = self.costs_of_layers(&candidate.block_config()?, candidate.parallel.offload)?;
        let staged = self.timeline(&candidate.pipeline_config())?;
        let (step, memory) = candidate.step(&blocks, &staged);
        Ok(Stepped { blocks, staged, step, memory })
    }

    /// Stages of a candidate with these blocks, in the order of their schedule.
    fn staged(&self, candidate: &Candidate<'_>, blocks: &Blocks) -> Result<Staged, Error> {
        let parallel = &candidate.parallel;
        let schedule = ScheduledPipeline::of(parallel, candidate.microbatches)?;
        let starts = self.stage_starts(&parallel.stages, &candidate.block_config()?, blocks, &schedule.pipeline)?;
        candidate.staged(blocks, &starts, &schedule, &self.orders)
    }

    /// Costs of the blocks, on the device and, if some layers are offloaded, in host memory too.
    ///
    /// # Errors
    /// As [`CostDatabase::planned`].
    fn costs_of_layers(&self, config: &BlockConfig, offload: Offload) -> Answer<Blocks> {
        let blocks = self.block_costs(config)?;
        let Offload::All(Some(_)) = offload else { return Ok(blocks) };
        let on_host = Some(self.block_costs(&config.offloading())?);
        let Blocks { outline, profiles, recomputed, .. } = &*blocks;
        let (outline, profiles, recomputed) = (Arc::clone(outline), profiles.clone(), recomputed.clone());
        Ok(Arc::new(Blocks { outline, profiles, recomputed, on_host }))
    }

    /// Best choices of values to recompute, for `runs` instances of each block.
    ///
    /// # Errors
    /// As [`CostDatabase::planned`].
    pub(super) fn frontier(&self, config: &BlockConfig, runs: &[f64]) -> Answer<Frontier> {
        self.frontiers.get(self, &(config.keeping_all(), runs.iter().map(|runs| runs.to_bits()).collect()))
    }

    /// Values to recompute in the fastest choice if the rest is offloaded to host memory.
    ///
    /// # Errors
    /// As [`CostDatabase::planned`].
    pub(super) fn offload_choice(&self, config: &BlockConfig) -> Answer<Vec<String>> {
        self.offload_choices.get(self, &config.keeping_all())
    }

    /// Options of blocks that save everything to save less.
    ///
    /// # Errors
    /// As [`CostDatabase::planned`].
    pub(super) fn memory_options(&self, config: &BlockConfig) -> Answer<RecomputeOptions> {
        self.memory_options.get(self, config)
    }

    /// Lower bound over all pipelines.
    ///
    /// # Errors
    /// As [`CostDatabase::planned`].
    pub(super) fn average_rank(&self, config: &AverageRankConfig) -> Result<StepCost, Error> {
        self.average_ranks.get(self, config)
    }

    fn plan_key(&self, config: &PlanConfig) -> PlanKey {
        PlanKey { config: config.clone(), seq: self.context.seq, dtype: self.dtype }
    }

    fn platform<'a>(&'a self, cluster: &'a Cluster) -> Platform<'a> {
        Platform { cluster, stack: &self.stack, recipe: &self.recipe }
    }

    /// Calls `then` with the planned model in the sizes of a configuration.
    fn in_plan<T>(
        &self,
        config: &BlockConfig,
        part: Part,
        then: impl FnOnce(&Model, &Arc<Outline>) -> T,
    ) -> Result<T, Error> {
        match self.planning {
            Planning::Alone => {
                let planned = self.planned(&config.plan)?;
                Ok(then(&planned.model, &planned.outline))
            }
            Planning::ByShape => self.plans.in_shape(&self.plan_key(&config.plan), part, &self.paths, then),
        }
    }

    /// Costs of some blocks.
    fn compute_costs(&self, config: &BlockConfig, which: BlockFilter, known: KnownCosts<'_>) -> Answer<Blocks> {
        let cluster = self.clusters.get(self, &config.cores_each);
        self.in_plan(config, part_of(which), |model, outline| {
            // The other blocks were checked when their costs were computed.
            if which != BlockFilter::Experts {
                check(model, config)?;
            }
            let platform = self.platform(&cluster);
            let share = |reach| self.context.attention_share(reach);
            Ok(Arc::new(Blocks::of(model, outline, &config.options, &platform, &share, which, known)))
        })?
    }

    /// Choices of values to recompute for one instance of each of some blocks; those of the others are given.
    fn compute_choices(&self, config: &BlockConfig, which: BlockFilter, others: &BlockChoices) -> Answer<BlockChoices> {
        let cluster = self.clusters.get(self, &config.cores_each);
        self.in_plan(config, part_of(which), |model, _| {
            Arc::new(choices_of_each(model, &config.options, &self.platform(&cluster), which, others))
        })
    }

    /// Costs of the blocks without experts, if these do not depend on how experts are sharded over ranks. This holds in a
    /// built model, unless these blocks exchange parts: there, finer axes may allow another reshard path.
    fn dense_of(&self, config: &BlockConfig) -> Result<Option<Arc<Blocks>>, Error> {
        if !self.plans.source.is_built() || !config.plan.parallel().has_folded_experts() {
            return Ok(None);
        }
        let dense = self.dense_costs.get(self, &config.without_experts())?;
        let exchanges = |of: &Profile| of.f.ep + of.i.ep + of.w.ep > 0.0;
        Ok((!dense.profiles.iter().any(exchanges)).then_some(dense))
    }
}

/// The part of a model that has some blocks.
fn part_of(which: BlockFilter) -> Part {
    if which == BlockFilter::Experts { Part::Experts } else { Part::All }
}

fn block_costs(database: &CostDatabase, config: &BlockConfig) -> Answer<Blocks> {
    // Costs with whole layers recomputed contain those of blocks that save everything.
    let is_plain = config.options.recompute == Recompute::None;
    if let Some(Ok(whole)) = is_plain.then(|| database.block_costs.known(&config.recomputing_layers())).flatten() {
        let Blocks { outline, profiles, .. } = &*whole;
        let (outline, profiles) = (Arc::clone(outline), profiles.clone());
        return Ok(Arc::new(Blocks { outline, profiles, recomputed: None, on_host: None }));
    }
    let dense = if database.planning == Planning::ByShape { database.dense_of(config)? } else { None };
    let which = if dense.is_some() { BlockFilter::Experts } else { BlockFilter::All };
    let plain = known_plain(&database.block_costs, config);
    database.compute_costs(config, which, KnownCosts { others: dense.as_deref(), plain: plain.as_deref() })
}

fn dense_costs(database: &CostDatabase, config: &BlockConfig) -> Answer<Blocks> {
    let plain = known_plain(&database.dense_costs, config);
    database.compute_costs(config, BlockFilter::Others, KnownCosts { others: None, plain: plain.as_deref() })
}

/// Costs without recomputation, if they are known.
fn known_plain(costs: &CostQuery<BlockConfig, Answer<Blocks>>, config: &BlockConfig) -> Option<Arc<Blocks>> {
    let is_plain = config.options.recompute == Recompute::None;
    if is_plain { None } else { costs.known(&config.recomputing_nothing())?.ok() }
}

fn partition(database: &CostDatabase, config: &PartitionConfig) -> Answer<Vec<usize>> {
    let PartitionConfig { ref blocks, placement, ranks, chunks } = *config;
    // No partition depends on how many micro-batches there are.
    let pipeline = Pipeline { chunks, ..Pipeline::new(placement, ranks, ranks) };
    starts(&*database.block_costs(blocks)?, database.stack.traits.cut, &pipeline).map(Arc::new)
}

fn timeline(database: &CostDatabase, config: &PipelineConfig) -> Answer<Staged> {
    database.in_candidate(config, |candidate| {
        let parallel = &candidate.parallel;
        let blocks = database.costs_of_layers(&candidate.block_config()?, parallel.offload)?;
        database.staged(&candidate, &blocks).map(Arc::new)
    })
}

fn simulated(database: &CostDatabase, config: &PipelineConfig) -> Answer<Simulated> {
    database.in_candidate(config, |candidate| {
        let blocks = database.costs_of_layers(&candidate.block_config()?, candidate.parallel.offload)?;
        let staged = match database.timelines.known(config) {
            Some(known) => known?,
            None => Arc::new(database.staged(&candidate, &blocks)?),
        };
        let seconds = candidate.seconds(&blocks, &staged);
        Ok(Arc::new(Simulated { path: staged.path().cloned(), seconds }))
    })
}

fn frontier_of(database: &CostDatabase, (config, runs): &(BlockConfig, Vec<u64>)) -> Answer<Frontier> {
    let runs: Vec<f64> = runs.iter().map(|bits| f64::from_bits(*bits)).collect();
    let cluster = database.clusters.get(database, &config.cores_each);
    database.in_plan(config, Part::All, |model, _| {
        Arc::new(frontier(model, &runs, &config.options, &database.platform(&cluster)))
    })
}

fn block_frontiers(database: &CostDatabase, config: &BlockConfig) -> Answer<BlockChoices> {
    if database.planning == Planning::Alone || database.dense_of(config)?.is_none() {
        return database.compute_choices(config, BlockFilter::All, &BlockChoices::default());
    }
    let others = database.dense_frontiers.get(database, &config.without_experts())?;
    database.compute_choices(config, BlockFilter::Experts, &others)
}

fn dense_frontiers(database: &CostDatabase, config: &BlockConfig) -> Answer<BlockChoices> {
    database.compute_choices(config, BlockFilter::Others, &BlockChoices::default())
}

fn offload_choice(database: &CostDatabase, config: &BlockConfig) -> Answer<Vec<String>> {
    let all = database.block_costs(config)?;
    let each = database.block_frontiers.get(database, config)?;
    let cluster = database.clusters.get(database, &config.cores_each);
    let platform = database.platform(&cluster);
    let seconds = |block: usize, choice: &RecomputeChoice| {
        let cost = RecomputeCost { bytes: choice.bytes, seconds: choice.seconds };
        offloaded(&all.profiles[block], cost, &platform).seconds()
    };
    database.in_plan(config, Part::All, |model, _| {
        Arc::new(fastest(|runs| frontier(model, runs, &config.options, &platform), &each, seconds))
    })
}

fn memory_options(database: &CostDatabase, config: &BlockConfig) -> Answer<RecomputeOptions> {
    let all = database.block_costs(config)?;
    let whole = database.block_costs(&config.recomputing_layers())?;
    let parts = database.block_frontiers.get(database, config)?;
    let cluster = database.clusters.get(database, &config.cores_each);
    Ok(Arc::new(RecomputeOptions::of(
        &all,
        &parts,
        &whole,
        &database.platform(&cluster),
        database.context.lengths.is_empty(),
    )))
}

fn average_rank(database: &CostDatabase, config: &AverageRankConfig) -> Result<StepCost, Error> {
    let (cores_each, microbatches) = (config.cores_each, config.microbatches);
    let cluster = database.clusters.get(database, &cores_each);
    let platform = database.platform(&cluster);
    let candidate = Candidate { parallel: config.parallel(), platform, microbatches, cores_each, budget: 0.0 };
    let blocks = database.block_costs(&candidate.block_config_of_any_order()?)?;
    let open = Relaxation::of(&candidate, &blocks);
    Ok(open.average_rank(open.average_elements(), config.orders, config.budget()))
}
