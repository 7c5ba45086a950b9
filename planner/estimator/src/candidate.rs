//! A configuration on the platform that it runs on: its stages in their order, its step, and its memory.

use super::action_order::OrderCache;
use super::blocks::Blocks;
use super::critical_path::CriticalPath;
use super::error::Error;
use super::job_numbers::{refused, refused_by_all_schedules};
use super::memory::{fullest_device, host_holds};
use super::ordered_stages::OrderedStages;
use super::pipeline::{PipelineTimeline, ScheduledPipeline, flow};
use super::place::neighbours;
use super::projection::{BlockConfig, PipelineConfig};
use super::relaxation::StepCost;
use super::replicas::{Replicas, running_zero};
use super::report::StageMemory;
use super::stages::{StageCost, loads};
use super::step::{Step, tied};
use cost::{Cluster, CollectiveKind, Hidden, Platform};
use ir::options::ParallelConfig;
use scheduler::placement::Pipeline;
use std::sync::Arc;

/// A configuration to be evaluated.
pub(super) struct Candidate<'a> {
    pub(super) parallel: ParallelConfig,
    pub(super) platform: Platform<'a>,
    /// Micro-batches of a step.
    pub(super) microbatches: u32,
    /// Cores of each device, if devices share cores.
    pub(super) cores_each: u64,
    /// Memory budget of a device in bytes; 0 where no memory counts.
    pub(super) budget: f64,
}

/// Stages and their order.
pub(super) struct Staged {
    pub(super) loads: Vec<StageCost>,
    /// Seconds between each stage and the next.
    pub(super) hops: Vec<f64>,
    pub(super) flow: PipelineTimeline,
}

/// Parts of stages in their order that bounds need, which takes a hundredth of their memory.
pub(super) struct Simulated {
    /// Critical path, if it is known.
    pub(super) path: Option<CriticalPath>,
    /// Seconds of the step.
    pub(super) seconds: f64,
}

impl Staged {
    /// First block instance of each stage.
    pub(super) fn starts(&self) -> Vec<usize> {
        self.loads.iter().map(|load| load.runs.start).collect()
    }

    /// Critical path, if it is known.
    pub(super) fn path(&self) -> Option<&CriticalPath> {
        self.flow.path.as_ref()
    }
}

/// Step and memory of a configuration, with the costs that they follow from.
pub(super) struct Stepped {
    pub(super) blocks: Arc<Blocks>,
    pub(super) staged: Arc<Staged>,
    pub(super) step: Step,
    pub(super) memory: Vec<StageMemory>,
}

impl Stepped {
    /// Returns `true` if the offloaded activations fit in host memory.
    pub(super) fn fits_host(&self, cluster: &Cluster) -> bool {
        host_holds(cluster, &self.memory)
    }

    /// Seconds of the step, and bytes of the peak-memory device.
    pub(super) fn floor(&self) -> StepCost {
        StepCost { seconds: self.step.seconds, bytes: fullest_device(&self.memory) }
    }
}

impl Candidate<'_> {
    /// The fields that blocks depend on.
    ///
    /// # Errors
    /// The degrees of the experts do not divide those of the other blocks.
    pub(super) fn block_config(&self) -> Result<BlockConfig, Error> {
        BlockConfig::of(&self.parallel, self.cores_each, refused(&self.parallel, self.platform.stack))
    }

    /// The fields that blocks depend on, under whichever schedule the stack runs best.
    ///
    /// # Errors
    /// As [`Candidate::block_config`].
    pub(super) fn block_config_of_any_order(&self) -> Result<BlockConfig, Error> {
        BlockConfig::of(&self.parallel, self.cores_each, refused_by_all_schedules(&self.parallel, self.platform.stack))
    }

    /// The fields that the order and the times of actions depend on.
    pub(super) fn pipeline_config(&self) -> PipelineConfig {
        let zero = running_zero(&self.parallel, self.microbatches, &self.platform);
        PipelineConfig::of(&self.parallel, zero, self.microbatches, self.cores_each)
    }

    /// Stages that begin at `starts`, in the order of a schedule.
    ///
    /// # Errors
    /// The schedule does not support the pipeline.
    pub(super) fn staged(
        &self,
        blocks: &Blocks,
        starts: &[usize],
        schedule: &ScheduledPipeline,
        orders: &OrderCache,
    ) -> Result<Staged, Error> {
        let mut loads =
            loads(blocks, &self.parallel, starts, &Replicas::new(&self.parallel, self.microbatches, &self.platform));
        let hops = self.hops(&mut loads, &schedule.pipeline);
        let flow = flow(&loads, &hops, schedule, orders)?;
        Ok(Staged { loads, hops, flow })
    }

    /// The step of stages in their order, and the memory of each pipeline rank.
    pub(super) fn step(&self, blocks: &Blocks, staged: &Staged) -> (Step, Vec<StageMemory>) {
        let replicas = Replicas::new(&self.parallel, self.microbatches, &self.platform);
        let ordered = self.ordered(blocks, staged, &replicas);
        (ordered.step(self.tied(blocks, &staged.loads)), ordered.memory())
    }

    /// Seconds of the step of stages in their order.
    pub(super) fn seconds(&self, blocks: &Blocks, staged: &Staged) -> f64 {
        let replicas = Replicas::new(&self.parallel, self.microbatches, &self.platform);
        self.ordered(blocks, staged, &replicas).step(self.tied(blocks, &staged.loads)).seconds
    }

    fn ordered<'a>(
        &'a self,
        blocks: &'a Blocks,
        Staged { loads, flow, .. }: &'a Staged,
        replicas: &'a Replicas<'a>,
    ) -> OrderedStages<'a> {
        let Candidate { parallel, budget, .. } = self;
        OrderedStages { parallel, replicas, loads, tied: &blocks.outline.tied, flow, budget: *budget }
    }

    /// Seconds between each stage and the next. If a stack sends and receives in one call, both ends are blocked for half of the
    /// seconds. A stack that hides messages does so only on ranks with several stages.
    pub(super) fn hops(&self, loads: &mut [StageCost], pipeline: &Pipeline) -> Vec<f64> {
        let traits = &self.platform.stack.traits;
        let goes_on = self.platform.stack.hides(Hidden::PointToPoint) && pipeline.stages() > pipeline.ranks;
        let shown = if goes_on { 1.0 - self.platform.stack.fitted.overlap.value } else { 1.0 };
        let neighbours = neighbours(&self.parallel);
        // Most stages send the same number of bytes.
        let mut last = (f64::NAN, 0.0);
        let send = |load: &StageCost| {
            if load.boundary != last.0 {
                let seconds = self.platform.collective_time(CollectiveKind::Send, load.boundary, neighbours);
                last = (load.boundary, shown * (traits.network.hop + seconds));
            }
            last.1
        };
        let mut hops: Vec<f64> = loads.iter().take(loads.len() - 1).map(send).collect();
        if traits.network.hop > 0.0 {
            for (stage, load) in loads.iter_mut().enumerate() {
                let before = stage.checked_sub(1).map_or(0.0, |hop| hops[hop]);
                load.messages = (before + hops.get(stage).copied().unwrap_or(0.0)) / 2.0;
            }
            hops.iter_mut().for_each(|hop| *hop /= 2.0);
        }
        hops
    }

    /// Seconds of reducing the gradients of parameters that stages on different ranks share.
    fn tied(&self, blocks: &Blocks, loads: &[StageCost]) -> f64 {
        let apart = blocks.outline.tied.iter().filter(|tied| {
            let stage = |run: &usize| loads.iter().position(|load| load.runs.contains(run));
            tied.runs.iter().map(stage).any(|at| at != stage(&tied.runs[0]))
        });
        if self.parallel.pp < 2 {
            0.0
        } else {
            tied(apart.map(|tied| tied.elements(1.0).trained.total()).sum(), &self.parallel, &self.platform)
        }
    }
}
