//! Lower bounds on the bytes of a search node. They serve searches for the least memory, and checks that any configuration
//! fits.

use super::blocks::Blocks;
use super::memory::{Gathers, fullest_device, states, within};
use super::ordered_stages::OrderedStages;
use super::pipeline::ScheduledPipeline;
use super::quantities::{BlockPeak, TpReductions};
use super::relaxation::{Relaxation, flow_of};
use super::replicas::Replicas;
use super::stages::memory_loads;
use super::update_memory::moving_layers;
use cost::{Platform, Profile};
use ir::options::ParallelConfig;

impl Relaxation<'_> {
    /// Lower bound over all pipelines: the average rank, or the rank with most layers, if blocks save as little as `small`
    /// ones.
    pub(super) fn least_of_any(&self, small: &Blocks) -> f64 {
        let replicas = Replicas::new(self.parallel, self.microbatches, self.platform);
        let average = self.average_bytes(self.average_elements(), Some(small), &replicas);
        let layers = self.fast.outline.layers_by_block().into_iter();
        layers.map(|(block, runs)| self.with_most(block, runs, small, &replicas)).fold(average, f64::max)
    }

    /// Bytes of the rank with most layers of one kind. Of n layers on p ranks, some rank has n/p, rounded up. Until the first
    /// backward of the last stage, this rank saves all of them for a micro-batch.
    fn with_most(&self, block: usize, runs: u64, small: &Blocks, replicas: &Replicas<'_>) -> f64 {
        let traits = &self.platform.stack.traits;
        let fast = &self.fast.profiles[block];
        let small: &Profile = &small.recomputed.as_ref().unwrap_or(&small.profiles)[block];
        let layers = runs.div_ceil(self.parallel.pp) as f64;
        let states = states(fast.elements * layers, replicas);
        let saved = layers * small.saved;
        // A step's only backward may reuse the memory of the saved activations for gradients.
        let held = replicas.held(fast.elements.all * layers);
        let reused = (saved + held).min(states.gradients);
        let replaced = if traits.zero.frees_gradients && self.microbatches < 2 { reused } else { 0.0 };
        let transient = small.transient.min(fast.transient);
        let (all, trained) = (fast.elements.all.total(), fast.elements.trained.total());
        let one = BlockPeak { transient, elements: all, trained, ..BlockPeak::default() };
        let inner = within(one, BlockPeak::default(), 0.0, 0.0, gathers(replicas), self.platform);
        let messages = if self.parallel.pp > 1 { 4.0 * fast.boundary } else { 0.0 };
        let needed = states.total() + held + saved - replaced + inner + messages + traits.memory.workspace;
        let updated = fast.elements.trained * layers;
        let of_model = self.average_elements().trained.total() * self.parallel.pp as f64;
        let update = moving_layers([trained, of_model - trained * runs as f64], &states, updated, self.platform);
        let needed = needed.max(states.total() + update);
        needed * traits.memory.reserve + traits.memory.context + communicators(self.parallel, self.platform)
    }

    /// Lower bound for the stages that begin at `starts`, in a schedule. Blocks save as little as `small` ones, and states
    /// are sharded as in whichever of `shards` leaves least.
    pub(super) fn least_bytes(
        &self,
        small: &Blocks,
        starts: &[usize],
        schedule: &ScheduledPipeline,
        shards: &[ParallelConfig],
    ) -> f64 {
        let mut loads = memory_loads(small, starts);
        for (small, fast) in loads.iter_mut().zip(memory_loads(self.fast, starts)) {
            // Recomputed values are among the inner values, so there are at least as many inner values as without
            // recomputation.
            small.layer.transient = small.layer.transient.min(fast.layer.transient);
            small.layer.beyond_left = small.layer.transient;
            // The lead of the CPU over the device is not known either.
            small.reductions = TpReductions::default();
            // Nor is whether anything is offloaded, or what W computes again.
            small.copied = 0.0;
            if self.platform.stack.traits.saved.block_by_block {
                small.saved_for_w = 0.0;
            }
        }
        let flow = flow_of(&loads, &vec![0.0; loads.len()], schedule, f64::INFINITY);
        let bytes = |parallel: &ParallelConfig| {
            let replicas = Replicas::new(parallel, self.microbatches, self.platform);
            let (tied, budget) = (self.fast.outline.tied.as_slice(), self.budget);
            let ordered = OrderedStages { parallel, replicas: &replicas, loads: &loads, tied, flow: &flow, budget };
            fullest_device(&ordered.memory())
        };
        shards.iter().map(bytes).fold(f64::INFINITY, f64::min)
    }
}

/// How a block's parameters are gathered at least. Parameters that a forward leaves gathered do not count.
pub(super) fn gathers(replicas: &Replicas<'_>) -> Gathers {
    let keeps = replicas.gathers_once || replicas.platform.stack.traits.zero.keeps_gathered;
    Gathers { zero: if keeps { replicas.zero.min(2) } else { replicas.zero }, splits: true, ends_apart: true }
}

/// Bytes of the communicators of a configuration.
pub(super) fn communicators(parallel: &ParallelConfig, platform: &Platform<'_>) -> f64 {
    let ParallelConfig { dp, tp, pp, cp, ep, .. } = *parallel;
    let axes = [dp * cp, tp, pp, cp, ep].into_iter().filter(|&ranks| ranks > 1).count() as f64;
    let traits = &platform.stack.traits;
    (axes + traits.memory.communicators) * traits.memory.communicator
}
