//! Peak memory of each pipeline rank.

use super::least_bytes::communicators;
use super::ordered_stages::OrderedStages;
use super::pipeline::Rank;
use super::replicas::Replicas;
use super::report::StageMemory;
use super::stages::StageCost;
use cost::{Cluster, Format, Platform, Recipe};
use ir::options::ParallelConfig;

/// Bytes of a GiB.
pub(super) const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Bytes that live from step to step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ModelStates {
    /// Parameters as kernels read them.
    pub parameters: f64,
    /// Gradients.
    pub gradients: f64,
    /// Master copies and optimizer states.
    pub optimizer: f64,
}

impl ModelStates {
    /// Those of so many elements of dense parameters and of experts on one rank, whose copies lie on so many data-parallel
    /// ranks each. Parameters, gradients and optimizer states are cut among these from ZeRO stage 3, 2 and 1 on (Rajbhandari
    /// et al. 2020, section 5).
    pub fn of(elements: [f64; 2], ranks: [f64; 2], zero: u8, recipe: &Recipe) -> ModelStates {
        let held = |bytes: f64, from: u8| {
            let [dense, experts] = if zero >= from { ranks } else { [1.0; 2] };
            bytes * (elements[0] / dense + elements[1] / experts)
        };
        ModelStates {
            parameters: held(recipe.parameter, 3),
            gradients: held(recipe.gradient, 2),
            optimizer: held(recipe.master + recipe.states, 1),
        }
    }

    /// All of them.
    pub fn total(&self) -> f64 {
        self.parameters + self.gradients + self.optimizer
    }
}

/// Those of a rank on a stack.
pub(super) fn states(elements: [f64; 2], replicas: &Replicas<'_>) -> ModelStates {
    let (recipe, facts) = (replicas.platform.recipe, &replicas.platform.stack.facts);
    let mut states = ModelStates::of(elements, replicas.parts(), replicas.zero, recipe);
    let [dense, experts] = if replicas.zero > 0 { replicas.parts() } else { [1.0; 2] };
    states.optimizer += facts.update_bytes * (elements[0] / dense + elements[1] / experts);
    if facts.casts_gathered && replicas.zero > 2 && recipe.master > 0.0 {
        states.parameters = 0.0;
    }
    states
}

/// Bytes of the fullest device.
pub(super) fn fullest_device(ranks: &[StageMemory]) -> f64 {
    ranks.iter().map(|rank| rank.device * GIB).fold(0.0, f64::max)
}

/// Bytes that a device has in the host's memory at most.
pub(super) fn fullest_host(ranks: &[StageMemory]) -> f64 {
    ranks.iter().map(|rank| rank.host * GIB).fold(0.0, f64::max)
}

/// True if a cluster's devices, and the host's memory beside them, hold so much. Of a host of which nothing is known it is not
/// asked.
pub(super) fn holds(cluster: &Cluster, ranks: &[StageMemory]) -> bool {
    fullest_device(ranks) <= cluster.device.memory as f64 && host_holds(cluster, ranks)
}

/// True if the host's memory holds what each device offloads.
pub(super) fn host_holds(cluster: &Cluster, ranks: &[StageMemory]) -> bool {
    cluster.host_memory().is_none_or(|memory| fullest_host(ranks) <= memory)
}

impl OrderedStages<'_> {
    /// The bytes of each rank, in GiB.
    pub(super) fn memory(&self) -> Vec<StageMemory> {
        self.flow.ranks.iter().map(|rank| self.memory_of(rank)).collect()
    }

    fn memory_of(&self, rank: &Rank) -> StageMemory {
        let OrderedStages { parallel, replicas, loads, .. } = *self;
        let platform = replicas.platform;
        let facts = &platform.stack.facts;
        let own = || rank.stages.iter().map(|(stage, _)| &loads[*stage]);
        let elements = [own().map(|load| load.dense).sum::<f64>(), own().map(|load| load.experts).sum()];
        let mut states = states(elements, replicas);
        let whole = Whole::of(elements, parallel, replicas);
        let logits = own().map(|load| load.logits).sum::<f64>();
        let gathers = if whole.gathered > 0.0 { 2 } else { replicas.zero };
        let buffers = buffers(&own().collect::<Vec<_>>(), loads.len(), logits, gathers, platform);
        let logits = logits * rank.in_flight;
        let activations = (rank.kept - logits).max(0.0);
        states.parameters += whole.gathered + whole.copies;
        states.gradients += whole.wide;
        if facts.frees_gradients && rank.stages.iter().all(|(_, [forwards, ..])| *forwards <= 1.0) {
            // What the only backward makes takes the place of what the forward left.
            states.gradients = (states.gradients - activations - logits - whole.gathered).max(0.0);
        }
        let before = facts.context + communicators(parallel, platform);
        let before_update = states.total() + activations + logits + buffers;
        let needed = before_update.max(states.total() + updating(elements, replicas, platform.recipe));
        let buffers = buffers + needed - before_update;
        // What waits is waited for where there is no memory left.
        let left = ((platform.cluster.device.memory as f64 - before) / facts.reserve - needed).max(0.0);
        let waiting = waiting(rank, loads, facts.waiting).min(left);
        let (allocated, buffers) = (needed + waiting, buffers + waiting);
        let reserved = allocated * facts.reserve;
        let device = reserved + before;
        StageMemory {
            parameters: states.parameters / GIB,
            gradients: states.gradients / GIB,
            optimizer: states.optimizer / GIB,
            activations: activations / GIB,
            logits: logits / GIB,
            buffers: buffers / GIB,
            allocated: allocated / GIB,
            reserved: reserved / GIB,
            device: device / GIB,
            host: rank.offloaded / GIB,
        }
    }
}

/// Bytes beside the states, where what ZeRO-3 cuts stays whole for a time.
#[derive(Clone, Copy, Default)]
struct Whole {
    /// Bytes of parameters that a forward gathered and that stay until the backward.
    gathered: f64,
    /// Bytes of second copies of parameters: a rank's shard next to the gathered tensor, and experts quantised for their matmuls.
    copies: f64,
    /// Bytes of gradients that wait for the last micro-batch in the dtype of communication.
    wide: f64,
}

impl Whole {
    fn of(elements: [f64; 2], parallel: &ParallelConfig, replicas: &Replicas<'_>) -> Whole {
        let (recipe, facts) = (replicas.platform.recipe, &replicas.platform.stack.facts);
        let is_narrow = matches!(recipe.products, Format::F8 | Format::F4);
        let quantised = if is_narrow { facts.quantised_experts * recipe.products.bytes() * elements[1] } else { 0.0 };
        let mut whole = Whole { copies: quantised, ..Whole::default() };
        if parallel.zero < 3 || facts.casts_gathered {
            return whole;
        }
        // What no other rank holds is not cut.
        let cut = replicas.parts().map(|ranks| ranks > 1.0);
        let [dense, experts] = [0, 1].map(|kind| if cut[kind] { elements[kind] } else { 0.0 });
        if replicas.zero < 3 {
            let [dense_ranks, expert_ranks] = replicas.parts();
            whole.copies += recipe.parameter * (dense / dense_ranks + experts / expert_ranks);
            whole.wide = if facts.accumulates_wide { (recipe.wire - recipe.gradient).max(0.0) * dense } else { 0.0 };
        } else if facts.keeps_gathered {
            whole.gathered = recipe.parameter * (dense + experts);
        }
        whole
    }
}

/// Bytes of f32 copies of 16-bit states while a group of parameters is updated: experts are one, all else another.
fn updating(elements: [f64; 2], replicas: &Replicas<'_>, recipe: &Recipe) -> f64 {
    let [dense, experts] = if replicas.zero > 0 { replicas.parts() } else { [1.0; 2] };
    recipe.widened * (elements[0] / dense).max(elements[1] / experts)
}

/// Upper bound on the bytes of tensors that sums over tp have read and that stay, since the CPU is ahead of the device. The CPU
/// waits for the device with each message that it receives. In a pipeline it is ahead from one micro-batch to the next only if
/// the device has more work than the CPU. Otherwise it is ahead while the first stage begins, which receives no messages forward:
/// the second message of the first stage waits for the next stage, which is late in a first step.
fn waiting(rank: &Rank, loads: &[StageCost], most: f64) -> f64 {
    let own = || rank.stages.iter().map(|(stage, [forwards, ..])| (&loads[*stage], *forwards));
    let largest = own().map(|(load, _)| load.summed[1]).fold(0.0, f64::max);
    let stages = loads.len() as f64;
    let is_first = stages > 1.0 && rank.stages.iter().any(|(stage, _)| *stage == 0);
    let begun = if is_first { (rank.in_flight - 2.0).max(0.0) } else { 0.0 };
    let is_ahead = stages < 2.0 || own().map(|(load, forwards)| forwards * load.lag).sum::<f64>() > 0.0;
    let ahead = |forwards: f64| match is_ahead {
        true if forwards > stages => forwards,
        true => begun.max(1.0),
        false => begun,
    };
    own().map(|(load, forwards)| ahead(forwards) * load.summed[0]).sum::<f64>().min(most) * largest
}

/// Bytes besides saved activations, which include a micro-batch's logits. They are inner values of the current block, the
/// workspace of the matmul library, and messages to and from the neighbours (one in use, one in flight). Buffers of sums, and
/// gathered tensors of ZeRO-2 and 3, add to them.
fn buffers(own: &[&StageCost], stages: usize, logits: f64, zero: u8, platform: &Platform<'_>) -> f64 {
    let most = |of: &dyn Fn(&StageCost) -> f64| own.iter().map(|load| of(load)).fold(0.0, f64::max);
    let messages = if stages > 1 { 4.0 * most(&|load| load.boundary) } else { 0.0 };
    let [layer, end] = [0, 1].map(|place| Inner {
        transient: most(&|load| load.transient[place]),
        elements: most(&|load| load.largest[place]),
    });
    let facts = &platform.stack.facts;
    let ends = if facts.keeps_ends { own.iter().map(|load| load.ends).sum() } else { 0.0 };
    // No sum is of more than all gradients.
    let sums =
        facts.buffers.min(platform.recipe.parameter * own.iter().map(|load| load.dense + load.experts).sum::<f64>());
    facts.workspace + sums + messages + within(layer, end, ends, logits, zero, platform.recipe)
}

/// The most that a kind of block has within, and the elements of its parameters.
#[derive(Clone, Copy, Default)]
pub(super) struct Inner {
    pub(super) transient: f64,
    pub(super) elements: f64,
}

/// The most inner values, with what is whole beside them. ZeRO-3 gathers the parameters of the block under way and of the next,
/// a layer, and may keep those of the `ends`; while a layer's gradients are computed those of the one after it are summed. An
/// end's inner values are gone by the time its own gradients are summed, from a copy on the wire; and its logits, which are
/// kept, before layers go backward.
pub(super) fn within(layer: Inner, end: Inner, ends: f64, logits: f64, zero: u8, recipe: &Recipe) -> f64 {
    let gathered = |elements: f64| if zero > 2 { (elements + layer.elements) * recipe.parameter } else { 0.0 };
    let summed = |elements: f64, bytes: f64| if zero > 1 { elements * bytes } else { 0.0 };
    let in_layer = layer.transient + gathered(ends + layer.elements) + summed(layer.elements, recipe.wire);
    let in_end = end.transient.max(summed(end.elements, recipe.parameter + recipe.wire));
    (in_layer - logits).max(in_end + gathered(ends.max(end.elements)))
}

#[cfg(test)]
mod tests {
    use super::super::pipeline::PipelineTimeline;
    use super::*;
    use cost::Stack;
    use smallvec::smallvec;

    /// Llama's head of 128256 x 4096 under FSDP: its logits, or its gathered parameters with their gradients on the wire,
    /// whichever is more; without ZeRO its logits alone.
    #[test]
    fn an_end_holds_its_inner_values_or_its_gradients() {
        let (layer, logits) = (Inner { transient: 1e9, elements: 218e6 }, 2.1e9);
        let head = |transient| Inner { transient, elements: 525e6 };
        let recipe = Recipe::bf16();
        let gathered = 2.0 * (525e6 + 218e6);
        assert_eq!(within(layer, head(4.2e9), 0.0, logits, 3, &recipe), 4.2e9 + gathered);
        assert_eq!(within(layer, head(0.1e9), 0.0, logits, 3, &recipe), 6.0 * 525e6 + gathered);
        assert_eq!(within(layer, head(4.2e9), 1050e6, logits, 3, &recipe), 4.2e9 + gathered + 2.0 * 525e6);
        assert_eq!(within(layer, head(4.2e9), 0.0, logits, 0, &recipe), 4.2e9);
    }

    /// With 8 sums and 3 micro-batches 24 tensors wait, if 24 may; with one micro-batch 8.
    #[test]
    fn what_sums_have_read_waits_for_the_device() {
        let loads = [StageCost { summed: [8.0, 1e6], ..StageCost::default() }];
        let rank = |microbatches: f64| Rank { stages: smallvec![(0, [microbatches; 3])], ..Rank::default() };
        assert_eq!([0.0, 10.0, 40.0].map(|most| waiting(&rank(3.0), &loads, most)), [0.0, 1e7, 2.4e7]);
        assert_eq!(waiting(&rank(1.0), &loads, 40.0), 8e6);
    }

    /// Four stages of 2 sums: a slow device lets the CPU run ahead in many micro-batches, a fast one while the first stage begins.
    #[test]
    fn in_a_pipeline_what_waits_is_what_the_cpu_is_ahead() {
        let tensors = |lag: f64, stage: usize, microbatches: f64| {
            let loads: Vec<StageCost> =
                (0..4).map(|_| StageCost { summed: [2.0, 1.0], lag, ..StageCost::default() }).collect();
            let in_flight = microbatches.min(4.0 - stage as f64);
            let rank = Rank { stages: smallvec![(stage, [microbatches; 3])], in_flight, ..Rank::default() };
            waiting(&rank, &loads, 40.0)
        };
        assert_eq!([tensors(1.0, 0, 32.0), tensors(1.0, 3, 32.0)], [40.0, 40.0]);
        assert_eq!([tensors(-1.0, 0, 32.0), tensors(-1.0, 1, 32.0)], [4.0, 0.0]);
        assert_eq!([tensors(1.0, 0, 4.0), tensors(1.0, 1, 4.0), tensors(-1.0, 0, 2.0)], [4.0, 2.0, 0.0]);
    }

    /// States on 8 ranks with the same dense parameters and different experts.
    #[test]
    fn states_of_a_group_are_widened_at_once() {
        let (cluster, stack) = (Cluster::find("h100").unwrap(), Stack::find("megatron-core-2025").unwrap());
        let recipe = Recipe { widened: 8.0, ..Recipe::bf16() };
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &recipe };
        let bytes = |zero| {
            let parallel = ParallelConfig { dp: 8, ep: 8, zero, ..ParallelConfig::default() };
            updating([4e9, 1e9], &Replicas::new(&parallel, 1, &platform), &recipe)
        };
        assert_eq!([bytes(0), bytes(1)], [32e9, 8e9]);
    }

    /// States on 32 ranks, with experts over 16 of them. While micro-batches accumulate, all states are gathered, with gradients of all but
    /// experts in f32; of one only what a forward has gathered.
    #[test]
    fn whole_parameters_lie_beside_their_parts() {
        let (cluster, stack) = (Cluster::find("gb200-nvl72").unwrap(), Stack::find("automodel-2026").unwrap());
        let bytes = |ep, microbatches, products| {
            let parallel = ParallelConfig { dp: 32, ep, zero: 3, ..ParallelConfig::default() };
            let recipe = Recipe { products, gradient: 2.0, ..Recipe::bf16() };
            let platform = Platform { cluster: &cluster, stack: &stack, recipe: &recipe };
            let whole = Whole::of([32e9, 2e9], &parallel, &Replicas::new(&parallel, microbatches, &platform));
            [whole.gathered, whole.copies, whole.wide]
        };
        assert_eq!(bytes(16, 4, Format::Half), [0.0, 2.0 * (1e9 + 1e9), 2.0 * 32e9]);
        assert_eq!(bytes(16, 1, Format::Half), [2.0 * 34e9, 0.0, 0.0]);
        assert_eq!(bytes(32, 1, Format::F8), [2.0 * 32e9, 2.0625 * 2e9, 0.0]);
    }

    #[test]
    fn the_only_backward_puts_gradients_in_the_place_of_what_it_finds() {
        let (cluster, stack) = (Cluster::find("gb200-nvl72").unwrap(), Stack::find("automodel-2026").unwrap());
        let recipe = Recipe { gradient: 2.0, ..Recipe::bf16() };
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &recipe };
        let (parallel, loads) = (ParallelConfig::default(), [StageCost { dense: 1e9, ..StageCost::default() }]);
        let gradients = |forwards: f64, kept: f64| {
            let rank = Rank { stages: smallvec![(0, [forwards; 3])], kept, in_flight: 1.0, ..Rank::default() };
            let (replicas, flow) = (
                Replicas::new(&parallel, forwards as u32, &platform),
                PipelineTimeline { ranks: vec![rank], bubble: 0.0, path: None },
            );
            let ordered = OrderedStages { parallel: &parallel, replicas: &replicas, loads: &loads, flow: &flow };
            (ordered.memory()[0].gradients * GIB).round()
        };
        assert_eq!([gradients(1.0, 0.5e9), gradients(1.0, 3e9), gradients(2.0, 0.5e9)], [1.5e9, 0.0, 2e9]);
    }

    #[test]
    fn sums_are_of_no_more_than_all_gradients() {
        let (cluster, stack) = (Cluster::find("v100-dgx2").unwrap(), Stack::find("megatron-deepspeed-2021").unwrap());
        let recipe = Recipe::bf16();
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &recipe };
        let bytes = |dense: f64| buffers(&[&StageCost { dense, ..StageCost::default() }], 1, 0.0, 0, &platform);
        assert_eq!([1e8, 1e9].map(bytes), [2e8, 1e9].map(|sums| stack.facts.workspace + sums));
    }

    #[test]
    fn layers_go_backward_when_logits_are_gone() {
        let (layer, none) = (Inner { transient: 3e9, elements: 1e8 }, Inner { transient: 0.0, elements: 0.0 });
        assert_eq!(within(layer, none, 0.0, 2e9, 0, &Recipe::bf16()), 1e9);
        assert_eq!(within(layer, none, 0.0, 0.0, 2, &Recipe::bf16()), 3e9 + 4e8);
    }
}
