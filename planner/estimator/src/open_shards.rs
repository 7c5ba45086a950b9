//! Lower bound over the options for sharding states: the time of the stages without their collectives, and the memory of whichever
//! option leaves each device least.

use super::error::Error;
use super::evaluator::Evaluator;
use super::memory_fit::MemoryChoices;
use super::ordered_stages::OrderedStages;
use super::pipeline::{RankBound, ScheduledPipeline};
use super::place::replica_groups;
use super::quantities::TpReductions;
use super::relaxation::{FitQuery, Relaxation, Stages};
use super::replicas::Replicas;
use super::stages::StageCost;
use super::step::LeastAfter;
use ir::options::{Gather, ParallelConfig};

/// An option for sharding states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharding {
    /// Stage of ZeRO.
    pub zero: u8,
    /// Ranks among which ZeRO shards.
    pub shard: Option<u64>,
    /// How often parameters are gathered.
    pub gather: Gather,
    /// Overlap of collectives over data-parallel ranks with compute; `None` leaves it to the stack.
    pub dp_overlap: Option<bool>,
}

impl Sharding {
    /// The option of a configuration.
    pub fn of(parallel: &ParallelConfig) -> Sharding {
        let ParallelConfig { zero, shard, gather, dp_overlap, .. } = *parallel;
        Sharding { zero, shard, gather, dp_overlap }
    }

    /// A configuration with this option.
    pub fn on(self, parallel: ParallelConfig) -> ParallelConfig {
        let Sharding { zero, shard, gather, dp_overlap } = self;
        ParallelConfig { zero, shard, gather, dp_overlap, ..parallel }
    }
}

/// Limits of the configurations that a lower bound holds for.
pub struct FitLimits<'a> {
    /// Seconds from which on the bound need not be tighter.
    pub enough: f64,
    /// Memory budget of a device, in bytes.
    pub budget: f64,
    /// Memory options of the configurations.
    pub choices: &'a MemoryChoices,
}

impl FitLimits<'_> {
    /// Bytes with which a device needs none of the memory options.
    fn room(&self) -> f64 {
        if self.choices.may_keep() && self.choices.selective { self.budget } else { 0.0 }
    }
}

impl Evaluator {
    /// Lower bound on step time, in seconds, over configurations with the stages of `fast` that shard their states as one of `shards`
    /// and fit in memory.
    ///
    /// # Errors
    /// As [`Evaluator::cost`].
    pub fn any_shards(&self, fast: &ParallelConfig, shards: &[Sharding], limits: &FitLimits<'_>) -> Result<f64, Error> {
        let FitLimits { enough, budget, choices } = *limits;
        let candidate = self.candidate(fast.clone());
        let (config, blocks) = self.blocks(&candidate)?;
        let schedule = ScheduledPipeline::of(fast, candidate.microbatches)?;
        let starts = self.database.stage_starts(&candidate.parallel.stages, &config, &blocks, &schedule.pipeline)?;
        let open = Relaxation::of(&candidate, &blocks);
        let bounds = open.least_of_ranks(&starts, &schedule);
        let rough = open.rough(&bounds);
        if rough > enough || choices.are_none() {
            return Ok(rough);
        }
        let hops = |loads: &mut [StageCost]| candidate.hops(loads, &schedule.pipeline);
        let mut staged = open.laid_out(open.unsharded(), &starts, &schedule, hops, enough);
        staged.seconds = open.without_exchange(&staged);
        if staged.seconds > enough {
            return Ok(staged.seconds);
        }
        // The lead of the CPU over the device is not known.
        staged.loads.iter_mut().for_each(|load| load.reductions = TpReductions::default());
        let shards = open.sharded(shards);
        // The first rank mostly has the most activations in flight: where it takes too long, the others need no look.
        for devices in [Devices::First, Devices::All] {
            staged.device = open.least_devices(&staged, &shards, devices, limits.room());
            if staged.bytes() > limits.room() {
                let options = self.database.memory_options(&config)?;
                let query = FitQuery { options: &options, choices, budget, within: enough };
                staged.seconds = staged.seconds.max(open.fitted_to(&staged, &bounds, &schedule, &query));
                if staged.seconds > enough {
                    break;
                }
            }
        }
        Ok(staged.seconds)
    }
}

/// Ranks whose devices are looked at.
#[derive(Clone, Copy)]
enum Devices {
    First,
    All,
}

/// A configuration with an option for sharding states.
pub(super) struct Sharded<'a> {
    parallel: ParallelConfig,
    pub(super) replicas: Replicas<'a>,
}

impl<'a> Relaxation<'a> {
    /// Data-parallel ranks without collectives in micro-batches.
    fn unsharded(&self) -> Replicas<'a> {
        let whole = ParallelConfig { zero: 0, shard: None, ..self.parallel.clone() };
        Replicas::new(&whole, self.microbatches, self.platform)
    }

    /// Seconds of a step of these stages, without collectives over data-parallel ranks and the update.
    fn without_exchange(&self, staged: &Stages<'_>) -> f64 {
        let end = staged.flow.ranks.iter().map(|rank| rank.end).fold(0.0, f64::max);
        (end + self.platform.fixed()) * self.platform.stragglers(self.parallel.devices())
    }

    /// The configuration with each option for sharding states.
    pub(super) fn sharded(&self, shards: &[Sharding]) -> Vec<Sharded<'a>> {
        let mut all: Vec<Sharded<'a>> = Vec::with_capacity(shards.len());
        for sharding in shards {
            let parallel = sharding.on(self.parallel.clone());
            let alike = all.iter().find(|other| other.parallel.shard == sharding.shard);
            let groups = alike.map_or_else(|| replica_groups(&parallel), |other| *other.replicas.groups());
            let replicas = Replicas::in_groups(groups, &parallel, self.microbatches, self.platform);
            all.push(Sharded { parallel, replicas });
        }
        all
    }

    /// Bytes of devices at least, over the options `shards`: those of the first one with at most `enough` bytes on each device, if there
    /// is one.
    fn least_devices(&self, staged: &Stages<'_>, shards: &[Sharded<'_>], of: Devices, enough: f64) -> Vec<f64> {
        let mut least: Vec<f64> = Vec::new();
        for Sharded { parallel, replicas } in shards {
            let (tied, budget) = (self.fast.outline.tied.as_slice(), self.budget);
            let stages = OrderedStages { parallel, replicas, loads: &staged.loads, tied, flow: &staged.flow, budget };
            let device = match of {
                Devices::First => vec![stages.first_device()],
                Devices::All => stages.devices(),
            };
            if device.iter().all(|bytes| *bytes <= enough) {
                return device;
            }
            least.resize(device.len(), f64::INFINITY);
            least.iter_mut().zip(device).for_each(|(least, bytes)| *least = least.min(bytes));
        }
        least
    }

    /// Lower bound on the seconds of a step in which every device of `staged` fits in its budget, with nothing to do after the last
    /// backwards.
    fn fitted_to(
        &self,
        staged: &Stages<'_>,
        bounds: &[RankBound],
        schedule: &ScheduledPipeline,
        query: &FitQuery<'_>,
    ) -> f64 {
        let after = LeastAfter { reduce: vec![0.0; staged.device.len()], update: 0.0 };
        self.fitted_ranks(staged, bounds, schedule, None, after, query)
    }
}
