//! Lower bounds from some degrees alone, known before any model is planned for them: FLOPs / peak, and model states / ranks
//! that hold them.

use super::blocks::Blocks;
use super::least_bytes::{communicators, gathers};
use super::memory::{Inner, states, within};
use super::relaxation::StepCost;
use super::replicas::Replicas;
use cost::{Format, Platform, Recipe};
use ir::options::ParallelConfig;

/// The work of a sequence and the parameters of a model, which no configuration changes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ModelWork {
    /// FLOPs of a sequence's products, forward and backward.
    products: f64,
    /// FLOPs of its attention.
    attention: f64,
    /// Parameters that are no experts', and the experts'.
    elements: [f64; 2],
    /// Bytes of the inner values of a sequence in the end of the model that has most.
    inner: f64,
    /// Number of layers of the kind with most parameters.
    layers: u64,
    /// Parameters of one of these: those that are no experts', and the experts'.
    layer: [f64; 2],
}

/// The keys of a configuration that its degrees leave open.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Undecided {
    /// The ZeRO stage, if it is pinned.
    pub zero: Option<u8>,
    /// Micro-batches of a step: no configuration has fewer.
    pub microbatches: u32,
    /// Sequences of a micro-batch: no configuration has fewer.
    pub mbs: u64,
}

/// Ranks that share a sequence cut its inner values into as many parts at most; of a part this much is counted.
const SHARED_INNER: f64 = 0.5;

impl ModelWork {
    /// Work of a model planned for one device.
    pub(super) fn of(blocks: &Blocks, sequences: u64) -> ModelWork {
        let (causal, whole) = (blocks.sum(|it| it.flops), blocks.sum(|it| it.flops_noncausal));
        let shared: f64 = blocks.outline.tied.iter().map(|tied| tied.elements * (tied.runs.len() - 1) as f64).sum();
        let attention = whole - causal;
        let ends = blocks.outline.spans.iter().filter(|span| !span.are_layers);
        let elements = |block: usize| [blocks.profiles[block].dense, blocks.profiles[block].experts];
        let all = |&(block, runs): &(usize, u64)| runs as f64 * elements(block).iter().sum::<f64>();
        let most = blocks.outline.layers_by_block().into_iter().max_by(|a, b| all(a).total_cmp(&all(b)));
        let (layers, layer) = most.map_or((0, [0.0; 2]), |(block, runs)| (runs, elements(block)));
        ModelWork {
            products: 3.0 * (causal - attention) / sequences as f64,
            attention: 3.0 * attention / sequences as f64,
            elements: [blocks.sum(|it| it.dense) - shared, blocks.sum(|it| it.experts)],
            inner: ends.map(|end| blocks.profiles[end.block].transient).fold(0.0, f64::max) / sequences as f64,
            layers,
            layer,
        }
    }

    /// Bytes of the inner values of a micro-batch of one sequence on a rank at least.
    fn inner(&self, parallel: &ParallelConfig) -> f64 {
        self.inner * SHARED_INNER / (parallel.tp * parallel.cp) as f64
    }

    /// The most sequences of a micro-batch whose inner values have so much room.
    pub fn most_sequences(&self, parallel: &ParallelConfig, room: f64) -> u64 {
        (room / self.inner(parallel).max(1.0)) as u64
    }

    /// Lower bound on all configurations with these degrees: all devices at their full rate all the time, and the states of the average rank, the
    /// inner values of a micro-batch, or what the rank with most layers holds. With one micro-batch every stage of ZeRO is as
    /// asked for.
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
            states(on_a_rank(self.elements, &parallel).map(|all| all / parallel.pp as f64), &replicas).total()
        };
        // While micro-batches accumulate, stacks may run ZeRO-2 and 3 as ZeRO-1.
        let inner = self.inner(parallel) * open.mbs as f64;
        let stages = open.zero.map_or(0..=3, |zero| zero.min(1)..=zero);
        let fullest = stages.map(|zero| self.fullest(&under(zero), open.microbatches, inner, platform));
        let fullest = fullest.fold(f64::INFINITY, f64::min);
        let facts = &platform.stack.facts;
        let held = mean.max(inner).max(fullest);
        StepCost { seconds, bytes: held * facts.reserve + facts.context + communicators(parallel, platform) }
    }

    /// Lower bound on all configurations with a number of devices in this range: each state is stored at least once.
    pub fn of_devices(&self, [fewest, most]: [u64; 2], sequences: u64, platform: &Platform<'_>) -> StepCost {
        let seconds = self.seconds(most, sequences, platform) * platform.stragglers(fewest);
        let parallel = ParallelConfig { dp: most, zero: 3, ..ParallelConfig::default() };
        let replicas = Replicas::new(&parallel, 1, platform);
        let elements = self.elements.iter().sum::<f64>();
        let facts = &platform.stack.facts;
        StepCost { seconds, bytes: states([elements, 0.0], &replicas).total() * facts.reserve + facts.context }
    }

    /// Seconds of a step in which so many devices work at their full rate all the time.
    fn seconds(&self, devices: u64, sequences: u64, platform: &Platform<'_>) -> f64 {
        let device = &platform.cluster.device;
        let Recipe { products, .. } = *platform.recipe;
        let rate = device.sustained(products).max(device.sustained(Format::Half)).max(device.sustained(Format::F32));
        let peak = device.flops_bf16.max(device.flops_f32);
        let seconds = self.products / (rate * platform.stack.fitted.matmul.value) + self.attention / peak;
        seconds * sequences as f64 / devices as f64 + platform.fixed()
    }

    /// Bytes of the rank with most layers: n on p ranks are n/p, rounded up, on one of them. It holds their states, and what
    /// ZeRO gathers and sums of one. A single rank holds all states, and the inner values of the ends.
    fn fullest(&self, parallel: &ParallelConfig, microbatches: u32, inner: f64, platform: &Platform<'_>) -> f64 {
        if self.layers == 0 {
            return 0.0;
        }
        let replicas = Replicas::new(parallel, microbatches, platform);
        let layer = on_a_rank(self.layer, parallel);
        let one = Inner { transient: 0.0, elements: layer.iter().sum() };
        let whole = within(one, Inner::default(), 0.0, 0.0, gathers(&replicas), platform.recipe);
        let (held, beside) = if parallel.pp > 1 {
            let layers = self.layers.div_ceil(parallel.pp) as f64;
            (layer.map(|elements| layers * elements), whole)
        } else {
            (on_a_rank(self.elements, parallel), whole.max(inner))
        };
        states(held, &replicas).total() + beside + platform.stack.facts.workspace
    }
}

/// Number of some parameters on a rank, without pipeline and ZeRO.
fn on_a_rank([dense, experts]: [f64; 2], parallel: &ParallelConfig) -> [f64; 2] {
    [dense / parallel.tp as f64, experts / (parallel.ep * parallel.etp) as f64]
}
