//! Lower bounds of search nodes, on the costs of an evaluator.

use super::blocks::Blocks;
use super::candidate::Candidate;
use super::error::Error;
use super::evaluator::Evaluator;
use super::memory_fit::MemoryChoices;
use super::pipeline::ScheduledPipeline;
use super::projection::{AverageRankConfig, BlockConfig, StepContext};
use super::rank_waits::OpenOrders;
use super::relaxation::{FitQuery, Relaxation, StepCost, work_of};
use super::stages::StageCost;
use ir::options::{Offload, ParallelConfig, Recompute};
use std::sync::Arc;

/// Quantity requested from the lower bound of a search node.
pub enum BoundKind {
    /// Lower bound on step time, in seconds, over the configurations that fit in `budget` with some of the memory options
    /// `choices`. The computation may stop as soon as the bound exceeds `enough`.
    Seconds {
        /// Seconds from which on the bound need not be tighter.
        enough: f64,
        /// Memory budget of a device, in bytes.
        budget: f64,
        /// Memory options of the configurations.
        choices: MemoryChoices,
        /// True if the order of actions is decided.
        is_ordered: bool,
    },
    /// Lower bounds on the seconds and bytes of the configuration itself.
    Bytes,
}

/// A share of the work of a large micro-batch.
#[derive(Clone, Copy)]
pub struct LargeShare<'a> {
    /// Configuration of the large micro-batch.
    pub config: &'a ParallelConfig,
    /// Share of its work that a smaller micro-batch takes at least.
    pub share: f64,
}

impl Evaluator {
    /// The fields of a candidate that blocks depend on, and the costs of its blocks.
    pub(super) fn blocks(&self, candidate: &Candidate<'_>) -> Result<(BlockConfig, Arc<Blocks>), Error> {
        let config = candidate.block_config()?;
        let blocks = self.database.block_costs(&config)?;
        Ok((config, blocks))
    }

    /// Lower bound over all pipelines of configurations at least as fast as `fast`, with memory options and some orders left open. If
    /// `budget` is `None`, only the memory bound is computed.
    ///
    /// # Errors
    /// As [`Evaluator::cost`].
    pub fn average_rank(
        &self,
        fast: &ParallelConfig,
        orders: OpenOrders,
        budget: Option<f64>,
    ) -> Result<StepCost, Error> {
        let context = StepContext {
            zero: self.zero(fast),
            microbatches: self.microbatches(fast),
            cores_each: self.cores_each(fast),
        };
        self.database.average_rank(&AverageRankConfig::of(fast, context, orders, budget))
    }

    /// Lower bound on bytes over all pipelines and all numbers of micro-batches. The configurations shard their states as one
    /// of `shards`, and save no less than `small`.
    ///
    /// # Errors
    /// As [`Evaluator::cost`].
    pub fn least_of_any(&self, small: &ParallelConfig, shards: &[ParallelConfig]) -> Result<f64, Error> {
        let small = self.block_costs(small)?;
        let mut least = f64::INFINITY;
        for parallel in shards {
            // With one micro-batch every ZeRO stage is the requested one.
            let candidate = Candidate { microbatches: 1, ..self.candidate(parallel.clone()) };
            least =
                least.min(Relaxation::of(&candidate, &*self.block_costs(&candidate.parallel)?).least_of_any(&small));
        }
        Ok(least)
    }

    /// Lower bound on bytes over configurations that have the stages of `fast`, save no less than `small`, and shard their
    /// states as one of `shards`.
    ///
    /// # Errors
    /// As [`Evaluator::cost`].
    pub fn least_bytes(
        &self,
        fast: &ParallelConfig,
        small: &ParallelConfig,
        shards: &[ParallelConfig],
    ) -> Result<f64, Error> {
        let candidate = self.candidate(fast.clone());
        let (config, blocks) = self.blocks(&candidate)?;
        let schedule = ScheduledPipeline::of(fast, candidate.microbatches)?;
        let starts = self.database.stage_starts(&candidate.parallel.stages, &config, &blocks, &schedule.pipeline)?;
        let small = self.block_costs(small)?;
        Ok(Relaxation::of(&candidate, &blocks).least_bytes(&small, &starts, &schedule, shards))
    }

    /// Lower bounds over all pipelines, for configurations whose micro-batches take a share of the work of a large one. They have the same
    /// number of pipeline ranks. If the work alone takes more than `enough` seconds, it is the only bound.
    ///
    /// # Errors
    /// As [`Evaluator::cost`].
    pub fn average_ranks_by(
        &self,
        large: LargeShare<'_>,
        fast: &[ParallelConfig],
        orders: OpenOrders,
        enough: f64,
        budget: Option<f64>,
    ) -> Result<Vec<StepCost>, Error> {
        let blocks = self.block_costs(large.config)?.part(large.share);
        if let Some(first) = fast.first() {
            let seconds = Relaxation::of(&self.candidate(first.clone()), &blocks).work_alone(orders);
            if seconds > enough {
                return Ok(vec![StepCost { seconds, bytes: 0.0 }]);
            }
        }
        let mut elements = None;
        let bound = |parallel: &ParallelConfig| {
            let candidate = self.candidate(parallel.clone());
            let open = Relaxation::of(&candidate, &blocks);
            // They do not depend on how states are sharded.
            let elements = *elements.get_or_insert_with(|| open.average_elements());
            open.average_rank(elements, orders, budget)
        };
        Ok(fast.iter().map(bound).collect())
    }

    /// Lower bound over configurations at least as fast as `fast`, with memory options left open: recomputation and
    /// offloading do not change the stages.
    ///
    /// # Errors
    /// As [`Evaluator::cost`].
    pub fn floor(&self, fast: &ParallelConfig, ask: &BoundKind) -> Result<StepCost, Error> {
        let candidate = self.candidate(fast.clone());
        let (config, blocks) = self.blocks(&candidate)?;
        let schedule = ScheduledPipeline::of(fast, candidate.microbatches)?;
        let starts = self.database.stage_starts(&candidate.parallel.stages, &config, &blocks, &schedule.pipeline)?;
        let open = Relaxation::of(&candidate, &blocks);
        // If everything is saved, the bound is known from before the shards were decided.
        if let BoundKind::Seconds { enough, .. } = ask
            && fast.recompute != Recompute::None
        {
            let rough = open.rough(&open.least_of_ranks(&starts, &schedule));
            if rough > *enough {
                return Ok(StepCost { seconds: rough, bytes: 0.0 });
            }
        }
        let within = match ask {
            BoundKind::Seconds { enough, .. } => *enough,
            BoundKind::Bytes => f64::INFINITY,
        };
        let hops = |loads: &mut [StageCost]| candidate.hops(loads, &schedule.pipeline);
        let mut staged = open.staged(&starts, &schedule, hops, within);
        let mut order = None;
        if let BoundKind::Seconds { enough, is_ordered: true, .. } = ask
            && staged.seconds <= *enough
            && schedule.kind.has_fixed_order()
        {
            // The same without recomputation or offloading: one cached result serves all.
            let plain =
                self.candidate(ParallelConfig { offload: Offload::None, recompute: Recompute::None, ..fast.clone() });
            order = Some(self.database.simulated(&plain.pipeline_config())?);
        }
        let path = order.as_ref().and_then(|order| order.path.as_ref());
        if let Some(path) = path {
            open.along(&mut staged, path);
        }
        let seconds = staged.seconds;
        match ask {
            BoundKind::Bytes => Ok(StepCost { seconds, bytes: staged.bytes() }),
            BoundKind::Seconds { choices, .. } if choices.are_none() => Ok(StepCost { seconds, bytes: staged.bytes() }),
            BoundKind::Seconds { enough, budget, choices, .. } => {
                let fits = choices.may_keep() && choices.selective && staged.bytes() <= *budget;
                if fits || seconds > *enough {
                    return Ok(StepCost { seconds, bytes: 0.0 });
                }
                let options = self.database.memory_options(&config)?;
                let query = FitQuery { options: &options, choices, budget: *budget, within };
                let fitted = open.fitted(staged, &starts, &schedule, path, &query);
                Ok(StepCost { seconds: seconds.max(fitted), bytes: 0.0 })
            }
        }
    }

    /// Lower bound on step time, in seconds, over all pipelines, if blocks take as long as in this configuration without a
    /// pipeline.
    ///
    /// # Errors
    /// As [`Evaluator::cost`].
    pub fn work_of(&self, parallel: ParallelConfig) -> Result<f64, Error> {
        let candidate = self.candidate(parallel);
        let (parallel, blocks) = (&candidate.parallel, self.block_costs(&candidate.parallel)?);
        let passes = self.request.global_batch as f64 / (parallel.dp * parallel.mbs) as f64;
        Ok(work_of(&blocks, passes, &candidate.platform) * candidate.platform.stragglers(parallel.devices()))
    }
}
