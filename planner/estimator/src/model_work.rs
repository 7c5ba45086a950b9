//! Lower bounds from degrees alone, before a model is planned: FLOPs / peak, and model states / ranks that hold them.

use super::blocks::Blocks;
use super::least_bytes::{communicators, gathers};
use super::memory::{states, within};
use super::quantities::BlockPeak;
use super::relaxation::StepCost;
use super::replicas::Replicas;
use super::update_memory::moving_layers;
use cost::{Elements, Format, Platform, Recipe, SplitByExperts};
use ir::options::ParallelConfig;

/// Work of a sequence and parameters of a model; no configuration changes them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ModelWork {
    /// FLOPs of a sequence's products, forward and backward.
    products: f64,
    /// FLOPs of a sequence's attention, forward and backward.
    attention: f64,
    /// Parameters of the model.
    elements: Elements,
    /// Temporary bytes of a sequence, in the end of the model with the most of them.
    inner: f64,
    /// Number of layers of the kind that has most parameters.
    layers: u64,
    /// Parameters of one of these layers.
    layer: Elements,
}

/// Options that degrees leave open.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Undecided {
    /// The ZeRO stage, if it is pinned.
    pub zero: Option<u8>,
    /// Least number of micro-batches of a step.
    pub microbatches: u32,
    /// Least number of sequences of a micro-batch.
    pub mbs: u64,
}

/// Safety factor on temporary values: ranks that share a sequence shard them at most by the number of ranks.
const SHARED_INNER: f64 = 0.5;

impl ModelWork {
    /// Work of a model planned for one device.
    pub(super) fn of(blocks: &Blocks, sequences: u64) -> ModelWork {
        let (causal, whole) = (blocks.sum(|it| it.flops), blocks.sum(|it| it.flops_noncausal));
        let shared = blocks.outline.tied.iter().map(|tied| tied.elements(-((tied.runs.len() - 1) as f64)));
        let instances =
            blocks.outline.spans.iter().map(|span| blocks.profiles[span.block].elements * span.runs.len() as f64);
        let attention = whole - causal;
        let ends = blocks.outline.spans.iter().filter(|span| !span.are_layers);
        let elements = |block: usize| blocks.profiles[block].elements;
        let all = |&(block, runs): &(usize, u64)| runs as f64 * elements(block).all.total();
        let most = blocks.outline.layers_by_block().into_iter().max_by(|a, b| all(a).total_cmp(&all(b)));
        let (layers, layer) = most.map_or((0, Elements::default()), |(block, runs)| (runs, elements(block)));
        ModelWork {
            products: (3.0 * (causal - attention) - blocks.sum(|it| it.frozen_flops)) / sequences as f64,
            attention: 3.0 * attention / sequences as f64,
            elements: instances.chain(shared).sum(),
            inner: ends.map(|end| blocks.profiles[end.block].transient).fold(0.0, f64::max) / sequences as f64,
            layers,
            layer,
        }
    }

    /// Lower bound on a rank's temporary bytes of a micro-batch of one sequence.
    fn inner(&self, parallel: &ParallelConfig) -> f64 {
        self.inner * SHARED_INNER / (parallel.tp * parallel.cp) as f64
    }

    /// Largest number of sequences of a micro-batch whose temporary values fit in `budget` bytes.
    pub fn most_sequences(&self, parallel: &ParallelConfig, budget: f64) -> u64 {
        (budget / self.inner(parallel).max(1.0)) as u64
    }

    /// Lower bound over all configurations with these degrees. Seconds: all devices compute at their full rate. Bytes: the states
    /// of the average rank, the temporary values of a micro-batch, or the memory of the rank with most layers.
    pub fn floor(
        &self,
        parallel: &ParallelConfig,
        open: Undecided,
        sequences: u64,
        platform: &Platform<'_>,
    ) -> StepCost {
        let devices = parallel.devices();
        let seconds = self.seconds(devices, sequences, platform) * platform.stragglers(devices);
        let under = |zero: u8| ParallelConfig { zero, ..parallel.clone() };
        let mean = {
            let parallel = under(open.zero.unwrap_or(3));
            let replicas = Replicas::new(&parallel, open.microbatches, platform);
            states(on_a_rank(self.elements, &parallel) / parallel.pp as f64, &replicas).total()
        };
        // While micro-batches accumulate, stacks may run ZeRO-2 and 3 as ZeRO-1.
        let inner = self.inner(parallel) * open.mbs as f64;
        let stages = open.zero.map_or(0..=3, |zero| zero.min(1)..=zero);
        let fullest = stages.map(|zero| self.fullest(&under(zero), open.microbatches, inner, platform));
        let fullest = fullest.fold(f64::INFINITY, f64::min);
        let traits = &platform.stack.traits;
        let held = mean.max(inner).max(fullest);
        StepCost {
            seconds,
            bytes: held * traits.memory.reserve + traits.memory.context + communicators(parallel, platform),
        }
    }

    /// Lower bound over all configurations on a number of devices between `fewest` and `most`: each state is stored once.
    pub fn of_devices(
        &self,
        [fewest, most]: [u64; 2],
        offload_optimizer: bool,
        sequences: u64,
        platform: &Platform<'_>,
    ) -> StepCost {
        let seconds = self.seconds(most, sequences, platform) * platform.stragglers(fewest);
        let parallel = ParallelConfig { dp: most, zero: 3, offload_optimizer, ..ParallelConfig::default() };
        let replicas = Replicas::new(&parallel, 1, platform);
        let elements = self.elements.map(|part| SplitByExperts { dense: part.total(), experts: 0.0 });
        let traits = &platform.stack.traits;
        StepCost { seconds, bytes: states(elements, &replicas).total() * traits.memory.reserve + traits.memory.context }
    }

    /// Returns `true` if the hosts of `devices` devices may hold the optimizer states: each state is stored once.
    pub fn hosts_hold_states(&self, devices: u64, platform: &Platform<'_>) -> bool {
        let bytes = self.elements.trained.total() * (platform.recipe.master + platform.recipe.states);
        platform.cluster.host_memory().is_none_or(|memory| bytes / devices as f64 <= memory)
    }

    /// Seconds of a step in which all devices compute at their full rate.
    fn seconds(&self, devices: u64, sequences: u64, platform: &Platform<'_>) -> f64 {
        let device = &platform.cluster.device;
        let Recipe { products, .. } = *platform.recipe;
        let rate = device.sustained(products).max(device.sustained(Format::Half)).max(device.sustained(Format::F32));
        let peak = device.flops_bf16.max(device.flops_f32);
        let seconds = self.products / (rate * platform.stack.fitted.matmul.value) + self.attention / peak;
        seconds * sequences as f64 / devices as f64 + platform.fixed()
    }

    /// Bytes of the rank with most layers. Of n layers on p ranks, some rank has n/p, rounded up. It holds their states, and the
    /// gathered parameters and unsharded gradients of one. A single rank holds all states, and temporary values of the ends.
    fn fullest(&self, parallel: &ParallelConfig, microbatches: u32, inner: f64, platform: &Platform<'_>) -> f64 {
        if self.layers == 0 {
            return 0.0;
        }
        let replicas = Replicas::new(parallel, microbatches, platform);
        let layer = on_a_rank(self.layer, parallel);
        let (all, trained) = (layer.all.total(), layer.trained.total());
        let one = BlockPeak { elements: all, trained, ..BlockPeak::default() };
        let whole = within(one, BlockPeak::default(), 0.0, 0.0, gathers(&replicas), platform);
        let (elements, temporary) = if parallel.pp > 1 {
            let layers = self.layers.div_ceil(parallel.pp) as f64;
            (layer * layers, whole)
        } else {
            (on_a_rank(self.elements, parallel), whole.max(inner))
        };
        let states = states(elements, &replicas);
        let others = on_a_rank(self.elements, parallel).trained.total() - trained * self.layers as f64;
        let update = moving_layers([trained, others], &states, elements.trained, platform);
        states.total() + update.max(temporary + platform.stack.traits.memory.workspace)
    }
}

/// Parameter elements on one rank before ZeRO, of parameters of one stage.
fn on_a_rank(elements: Elements, parallel: &ParallelConfig) -> Elements {
    let ranks = SplitByExperts { dense: parallel.tp as f64, experts: (parallel.ep * parallel.etp) as f64 };
    elements.map(|part| part / ranks)
}
