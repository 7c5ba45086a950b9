//! Peak memory of each pipeline rank.

use super::budget::ROUNDING;
use super::least_bytes::communicators;
use super::ordered_stages::OrderedStages;
use super::pipeline::Rank;
use super::quantities::BlockPeak;
use super::replicas::{Replicas, reduced_bytes};
use super::report::StageMemory;
use super::stages::StageCost;
use super::update_memory::held_elements;
use cost::{Cluster, Elements, Format, Platform, Recipe, SplitByExperts};
use ir::options::ParallelConfig;

/// Bytes of a GiB.
pub(super) const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Model states: bytes that live from step to step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ModelStates {
    /// Parameters as kernels read them.
    pub parameters: f64,
    /// Gradients.
    pub gradients: f64,
    /// Master copies and optimizer states.
    pub optimizer: f64,
    /// Master copies and optimizer states in host memory.
    pub host: f64,
}

impl ModelStates {
    /// Model states of a rank with these parameter elements. From ZeRO stage 3, 2 and 1 on, parameters, gradients and
    /// optimizer states are sharded over `ranks` data-parallel ranks (Rajbhandari et al. 2020, section 5).
    pub fn of(elements: Elements, ranks: SplitByExperts, zero: u8, recipe: &Recipe) -> ModelStates {
        let on_rank = |elements: SplitByExperts, bytes: f64, from: u8| {
            let parts = if zero >= from { ranks } else { SplitByExperts::uniform(1.0) };
            bytes * (elements / parts).total()
        };
        ModelStates {
            parameters: on_rank(elements.all, recipe.parameter, 3),
            gradients: on_rank(elements.trained, recipe.gradient, 2),
            optimizer: on_rank(elements.trained, recipe.master + recipe.states, 1),
            host: 0.0,
        }
    }

    /// Leaves out the optimizer states of trained elements that another rank has.
    fn share(&mut self, elements: SplitByExperts, replicas: &Replicas<'_>) {
        let recipe = replicas.platform.recipe;
        let bytes = (recipe.master + recipe.states) * (elements / replicas.state_parts()).total();
        let place = if replicas.offloads_states { &mut self.host } else { &mut self.optimizer };
        *place -= bytes;
    }

    /// Sum of all states on the device.
    pub fn total(&self) -> f64 {
        self.parameters + self.gradients + self.optimizer
    }
}

/// Model states of a rank on a stack.
pub(super) fn states(elements: Elements, replicas: &Replicas<'_>) -> ModelStates {
    let (recipe, traits) = (replicas.platform.recipe, &replicas.platform.stack.traits);
    let mut states = ModelStates::of(elements, replicas.parts(), replicas.zero, recipe);
    if replicas.offloads_states {
        states.host = std::mem::take(&mut states.optimizer);
    }
    states.optimizer += traits.formats.update_bytes * (elements.trained / replicas.state_parts()).total();
    if traits.zero.casts_gathered && replicas.zero > 2 && recipe.master > 0.0 {
        // Frozen parameters have no master copy to be cast from.
        states.parameters = recipe.parameter * (elements.frozen() / replicas.parts()).total();
    }
    states
}

/// Bytes of the peak-memory device.
pub(super) fn fullest_device(ranks: &[StageMemory]) -> f64 {
    ranks.iter().map(|rank| rank.device * GIB).fold(0.0, f64::max)
}

/// Largest number of bytes that a device offloads to host memory.
pub(super) fn fullest_host(ranks: &[StageMemory]) -> f64 {
    ranks.iter().map(|rank| rank.host * GIB).fold(0.0, f64::max)
}

/// Returns `true` if the ranks fit in a memory budget of each device and, if it is known, in the memory of their hosts.
pub(super) fn holds(budget: f64, cluster: &Cluster, ranks: &[StageMemory]) -> bool {
    fullest_device(ranks) <= budget && host_holds(cluster, ranks)
}

/// Returns `true` if the offloaded bytes fit in host memory, or host memory is unknown.
pub(super) fn host_holds(cluster: &Cluster, ranks: &[StageMemory]) -> bool {
    cluster.host_memory().is_none_or(|memory| fullest_host(ranks) <= memory)
}

impl OrderedStages<'_> {
    /// Memory of each rank, in GiB.
    pub(super) fn memory(&self) -> Vec<StageMemory> {
        self.flow.ranks.iter().enumerate().map(|(number, rank)| self.memory_of(number, rank)).collect()
    }

    /// Bytes of each rank's device.
    pub(super) fn devices(&self) -> Vec<f64> {
        self.memory().iter().map(|rank| rank.device * GIB).collect()
    }

    /// Bytes of the device of the first rank.
    pub(super) fn first_device(&self) -> f64 {
        self.flow.ranks.first().map_or(0.0, |rank| self.memory_of(0, rank).device * GIB)
    }

    fn memory_of(&self, number: usize, rank: &Rank) -> StageMemory {
        let OrderedStages { parallel, replicas, loads, tied, .. } = *self;
        let platform = replicas.platform;
        let traits = &platform.stack.traits;
        let own: Vec<&StageCost> = rank.stages.iter().map(|it| &loads[it.stage]).collect();
        let copies = self.copies(number, rank);
        let (elements, borrowed) = held_elements(&own, &copies, tied, traits);
        let mut states = states(elements, replicas);
        states.share(borrowed.trained, replicas);
        let whole = Whole::of(elements, parallel, replicas);
        let logits = own.iter().map(|load| load.logits).sum::<f64>();
        let zero = if whole.gathered > 0.0 { 2 } else { replicas.zero };
        let splits = self.splits();
        let ends_apart = splits && !rank.fuses || parallel.sp && parallel.tp > 1;
        let gathers = Gathers { zero, splits, ends_apart };
        let buffers = buffers(&own, (loads.len(), rank), logits, gathers, platform);
        // Offloaded logits are on the device for the micro-batch that runs.
        let logits = (logits * rank.in_flight).min(rank.saved.max(logits));
        let activations = (rank.saved - logits).max(0.0);
        states.parameters += whole.gathered + whole.copies;
        states.gradients += whole.wide;
        if traits.zero.frees_gradients && rank.stages.iter().all(|it| it.runs.f <= 1.0) {
            // Gradients of a step's only backward reuse the memory of the saved activations.
            states.gradients = (states.gradients - activations - logits - whole.gathered).max(0.0);
        }
        let before = traits.memory.context + communicators(parallel, platform);
        let before_update = states.total() + activations + logits + buffers;
        let update = self.while_updating(rank, (&own, &copies), elements.trained, &states);
        let needed = before_update.max(states.total() + update);
        let buffers = buffers + needed - before_update;
        // Tensors are held only while there is free memory; without it the CPU waits for the device.
        let left = ((self.budget * (1.0 - ROUNDING) - before) / traits.memory.reserve - needed).max(0.0);
        let waiting = waiting(rank, loads, traits.memory.waiting).min(left);
        let (allocated, buffers) = (needed + waiting, buffers + waiting);
        let reserved = allocated * traits.memory.reserve;
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
            host: (rank.offloaded + states.host) / GIB,
        }
    }
}

/// Layers whose offloaded activations are on the device at once: one runs backward while the copies of the next one come, and those of the
/// forward before it are still leaving.
const COPIES: f64 = 3.0;

/// Bytes by which the peak while layers run is below all saved activations and a layer's temporary values: the saved logits of the
/// `own` stages are freed already. Where layers are offloaded, copies are on the device while the stage holds nothing else of the
/// micro-batch.
fn freed_for_layers(own: &[&StageCost], logits: f64) -> f64 {
    let offload = own.iter().filter(|load| load.copied > 0.0);
    offload.map(|load| load.saved.max(load.logits) - COPIES * load.copied).fold(logits, f64::min)
}

/// Bytes of copies on the device while the head runs: those of the last layer are leaving, if it is offloaded.
fn copies_at_end(own: &[&StageCost]) -> f64 {
    let offload = own.iter().filter(|load| load.copied > 0.0);
    offload.map(|load| load.copied - (load.saved - load.logits).max(0.0)).fold(0.0, f64::max)
}

/// Bytes by which the saved activations are below their peak while an embedding runs, if a rank has no other end: none of the layers has
/// saved anything of the micro-batch yet, or all have freed it.
fn missing_at_embedding(own: &[&StageCost], logits: f64) -> f64 {
    let embedding = own.iter().find(|load| load.runs.start == 0).filter(|_| logits == 0.0);
    embedding.map_or(0.0, |load| load.saved)
}

/// Bytes by which the saved activations are below their peak while the head runs. The peak may come when recomputed layers have run
/// backward, which then hold more for a W apart than their forward has saved, or while another stage of the rank runs.
fn missing_at_head(rank: &Rank, logits: f64) -> f64 {
    if logits > 0.0 { (rank.saved - rank.saved_at_end).max(0.0) } else { 0.0 }
}

/// How gathered parameters, and gradients before they are scattered, are held.
#[derive(Clone, Copy)]
pub(super) struct Gathers {
    /// Stage of ZeRO by which a block gathers and scatters.
    pub(super) zero: u8,
    /// `true` if W is apart from I.
    pub(super) splits: bool,
    /// `true` if an end has freed its gathered parameter before its gradient is computed: in a section of its own, or under sequence
    /// parallelism, where the gradient waits for its gathered input. Else it is computed while the parameter comes.
    pub(super) ends_apart: bool,
}

/// Bytes of unsharded copies that a stack holds under ZeRO-3, in addition to the states.
#[derive(Clone, Copy, Default)]
struct Whole {
    /// Parameters that stay gathered from the forward to the backward, or in the entire step.
    gathered: f64,
    /// Second copies of parameters: a rank's shard in addition to the gathered tensor, and experts quantised for their products.
    copies: f64,
    /// Extra bytes of gradients that accumulate in the communication dtype.
    wide: f64,
}

impl Whole {
    fn of(elements: Elements, parallel: &ParallelConfig, replicas: &Replicas<'_>) -> Whole {
        let (recipe, traits) = (replicas.platform.recipe, &replicas.platform.stack.traits);
        let is_narrow = matches!(recipe.products, Format::F8 | Format::F4);
        let quantised = if is_narrow {
            traits.formats.quantised_experts * recipe.products.bytes() * elements.all.experts
        } else {
            0.0
        };
        let mut whole = Whole { copies: quantised, gathered: replicas.held(elements.all), ..Whole::default() };
        if parallel.zero < 3 || replicas.zero > 2 || traits.zero.casts_gathered {
            return whole;
        }
        // Parameters without replicas are not sharded.
        let parts = replicas.parts();
        let sharded = SplitByExperts {
            dense: if parts.dense > 1.0 { elements.all.dense } else { 0.0 },
            experts: if parts.experts > 1.0 { elements.all.experts } else { 0.0 },
        };
        let summed = if parts.dense > 1.0 { elements.trained.dense } else { 0.0 };
        let wide = (recipe.comm_gradient - recipe.gradient).max(0.0) * summed;
        whole.copies += recipe.parameter * (sharded / parts).total();
        whole.wide = if traits.zero.accumulates_wide { wide } else { 0.0 };
        whole
    }
}

/// Bytes of inputs of reductions over tp that are held because the CPU is ahead of the device; `most` limits their number.
///
/// The CPU waits for the device with each message that it receives. In a pipeline it is therefore ahead across micro-batches
/// only if the device is slower than the CPU. Otherwise it is ahead while the first stage begins, which receives no messages in
/// the forward. There, the second message that it sends waits for the next stage, which is late in a first step.
fn waiting(rank: &Rank, loads: &[StageCost], most: f64) -> f64 {
    let own = || rank.stages.iter().map(|it| (&loads[it.stage], it.runs.f));
    let largest = own().map(|(load, _)| load.reductions.largest_input).fold(0.0, f64::max);
    let stages = loads.len() as f64;
    let is_first = stages > 1.0 && rank.stages.iter().any(|it| it.stage == 0);
    let begun = if is_first { (rank.in_flight - 2.0).max(0.0) } else { 0.0 };
    let is_ahead = stages < 2.0 || own().map(|(load, forwards)| forwards * load.lag).sum::<f64>() > 0.0;
    let ahead = |forwards: f64| match is_ahead {
        true if forwards > stages => forwards,
        true => begun.max(1.0),
        false => begun,
    };
    own().map(|(load, forwards)| ahead(forwards) * load.reductions.count).sum::<f64>().min(most) * largest
}

/// Bytes in addition to states and saved activations: temporary values of the running block, the workspace of the product
/// library, reduction buffers and messages. Each of two neighbours has a message in use and one in flight. Parameters and
/// gradients that ZeRO-2 and ZeRO-3 hold unsharded are included. The saved activations include the `logits` of one micro-batch.
fn buffers(
    own: &[&StageCost],
    (stages, rank): (usize, &Rank),
    logits: f64,
    gathers: Gathers,
    platform: &Platform<'_>,
) -> f64 {
    let most = |of: &dyn Fn(&StageCost) -> f64| own.iter().map(|load| of(load)).fold(0.0, f64::max);
    let messages = if stages > 1 { 4.0 * most(&|load| load.boundary) } else { 0.0 };
    let peak =
        |of: fn(&StageCost) -> BlockPeak| own.iter().map(|load| of(load)).fold(BlockPeak::default(), BlockPeak::max);
    let (mut layer, mut end) = (peak(|load| load.layer), peak(|load| load.end));
    let mut others = copies_at_end(own);
    if platform.stack.traits.saved.block_by_block {
        others -= missing_at_embedding(own, logits);
        let in_order = own.iter().map(|load| load.layer_in_order(gathers.splits));
        layer = in_order.fold(BlockPeak::default(), BlockPeak::max);
    }
    let traits = &platform.stack.traits;
    if traits.saved.block_by_block && gathers.splits && !rank.fuses {
        end.in_w = end.in_w_apart;
    }
    (end.transient, end.in_w) = (end.transient + others, end.in_w + others);
    if traits.saved.block_by_block {
        end.transient -= missing_at_head(rank, logits);
    }
    let ends = if traits.zero.keeps_ends { own.iter().map(|load| load.ends).sum() } else { 0.0 };
    // No reduction is larger than all gradients.
    let sums = traits
        .memory
        .buffers
        .min(platform.recipe.parameter * own.iter().map(|load| load.elements.trained.total()).sum::<f64>());
    traits.memory.workspace
        + sums
        + messages
        + within(layer, end, ends, freed_for_layers(own, logits), gathers, platform)
}

/// A layer's largest parameter as a part of all: of a gated layer's products three have about this size.
const LARGEST: f64 = 1.0 / 3.0;

/// Peak temporary bytes, gathered parameters and unsharded gradients included. While layers run, `freed` bytes of the saved activations
/// are not there.
///
/// Where a stack goes block by block, a layer's parameters are freed one after the other while its gradients come. One parameter is
/// then there twice. An end holds its parameter, and while it computes its gradient both, or the larger one.
///
/// ZeRO-3 gathers the parameters of the running block and of the next layer, and may retain those of the `ends`. While a
/// layer's gradients are computed, those of the layer after it are reduced. An end frees its temporary values before its
/// gradients are reduced, and its saved logits before layers run backward.
pub(super) fn within(
    layer: BlockPeak,
    end: BlockPeak,
    ends: f64,
    freed: f64,
    gathers: Gathers,
    platform: &Platform<'_>,
) -> f64 {
    let (recipe, zero) = (platform.recipe, gathers.zero);
    if platform.stack.traits.saved.block_by_block {
        let gathered = |elements: f64| if zero > 2 { elements * recipe.parameter } else { 0.0 };
        let summed = |elements: f64| if zero > 1 { elements * reduced_bytes(zero, platform) } else { 0.0 };
        let (whole, sums) = (gathered(layer.elements), summed(layer.trained));
        let in_layer = layer.transient + whole.max(sums) + LARGEST * whole.min(sums);
        let (whole, sums) = (gathered(end.elements), summed(end.trained));
        let in_w = end.in_w + if gathers.ends_apart { whole.max(sums) } else { whole + sums };
        return (in_layer - freed).max(end.transient + whole).max(in_w);
    }
    let gathered = |elements: f64| if zero > 2 { (elements + layer.elements) * recipe.parameter } else { 0.0 };
    let summed = |elements: f64, bytes: f64| if zero > 1 { elements * bytes } else { 0.0 };
    let in_layer = layer.transient + gathered(ends + layer.elements) + summed(layer.trained, recipe.comm_gradient);
    let in_end = end.transient.max(summed(end.trained, recipe.parameter + recipe.comm_gradient));
    (in_layer - freed).max(in_end + gathered(ends.max(end.elements)))
}

#[cfg(test)]
mod tests {
    use super::super::pipeline::PipelineTimeline;
    use super::super::quantities::{PerSection, StageRuns, TpReductions};
    use super::*;
    use cost::Stack;
    use smallvec::smallvec;

    fn by(zero: u8) -> Gathers {
        Gathers { zero, splits: false, ends_apart: false }
    }

    fn runs(stage: usize, microbatches: f64) -> StageRuns {
        StageRuns { stage, runs: PerSection::uniform(microbatches) }
    }

    /// Llama's head of 128256 x 4096 under FSDP: its logits, or its gathered parameters with their communicated gradients,
    /// whichever is more; without ZeRO its logits alone.
    #[test]
    fn an_end_holds_its_inner_values_or_its_gradients() {
        let (layer, logits) =
            (BlockPeak { transient: 1e9, elements: 218e6, trained: 218e6, ..BlockPeak::default() }, 2.1e9);
        let head = |transient| BlockPeak { transient, elements: 525e6, trained: 525e6, ..BlockPeak::default() };
        let (cluster, stack) = (Cluster::find("h100").unwrap(), Stack::find("fsdp-compile").unwrap());
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
        let gathered = 2.0 * (525e6 + 218e6);
        assert_eq!(within(layer, head(4.2e9), 0.0, logits, by(3), &platform), 4.2e9 + gathered);
        assert_eq!(within(layer, head(0.1e9), 0.0, logits, by(3), &platform), 6.0 * 525e6 + gathered);
        assert_eq!(within(layer, head(4.2e9), 1050e6, logits, by(3), &platform), 4.2e9 + gathered + 2.0 * 525e6);
        assert_eq!(within(layer, head(4.2e9), 0.0, logits, by(0), &platform), 4.2e9);
    }

    /// A head whose loss needs 4e9 bytes and its product 2e9: the loss is computed beside the gathered parameter, and the gradient
    /// comes when the loss is over.
    #[test]
    fn a_head_has_its_loss_before_its_gradient() {
        let cluster = Cluster::find("h100").unwrap();
        let stack = Stack::find("meshwright").unwrap();
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
        let bytes = |zero: u8, elements: f64, ends_apart: bool| {
            let head = BlockPeak { transient: 4e9, in_w: 2e9, elements, trained: elements, ..BlockPeak::default() };
            within(BlockPeak::default(), head, 0.0, 0.0, Gathers { zero, splits: false, ends_apart }, &platform)
        };
        assert_eq!([0, 2, 3].map(|zero| bytes(zero, 0.5e9, false)), [4e9, 4e9, 5e9]);
        assert_eq!([0, 2, 3].map(|zero| bytes(zero, 2e9, false)), [4e9, 6e9, 10e9]);
        assert_eq!([0, 2, 3].map(|zero| bytes(zero, 2e9, true)), [4e9, 6e9, 8e9]);
    }

    /// 8 reductions and 3 micro-batches hold 24 tensors, up to the limit; one micro-batch holds 8.
    #[test]
    fn what_sums_have_read_waits_for_the_device() {
        let reductions = TpReductions { count: 8.0, largest_input: 1e6 };
        let loads = [StageCost { reductions, ..StageCost::default() }];
        let rank = |microbatches: f64| Rank { stages: smallvec![runs(0, microbatches)], ..Rank::default() };
        assert_eq!([0.0, 10.0, 40.0].map(|most| waiting(&rank(3.0), &loads, most)), [0.0, 1e7, 2.4e7]);
        assert_eq!(waiting(&rank(1.0), &loads, 40.0), 8e6);
    }

    /// Four stages of 2 sums: a slow device lets the CPU run ahead in many micro-batches, a fast one while the first stage begins.
    #[test]
    fn in_a_pipeline_what_waits_is_what_the_cpu_is_ahead() {
        let tensors = |lag: f64, stage: usize, microbatches: f64| {
            let reductions = TpReductions { count: 2.0, largest_input: 1.0 };
            let loads: Vec<StageCost> = (0..4).map(|_| StageCost { reductions, lag, ..StageCost::default() }).collect();
            let in_flight = microbatches.min(4.0 - stage as f64);
            let rank = Rank { stages: smallvec![runs(stage, microbatches)], in_flight, ..Rank::default() };
            waiting(&rank, &loads, 40.0)
        };
        assert_eq!([tensors(1.0, 0, 32.0), tensors(1.0, 3, 32.0)], [40.0, 40.0]);
        assert_eq!([tensors(-1.0, 0, 32.0), tensors(-1.0, 1, 32.0)], [4.0, 0.0]);
        assert_eq!([tensors(1.0, 0, 4.0), tensors(1.0, 1, 4.0), tensors(-1.0, 0, 2.0)], [4.0, 2.0, 0.0]);
    }

    /// A stage that offloads all layers has three copies on the device, one that keeps more than three layers has none when memory is
    /// fullest.
    #[test]
    fn copies_are_there_while_nothing_else_of_the_micro_batch_is() {
        let freed = |saved: f64| freed_for_layers(&[&StageCost { saved, copied: 1.0, ..StageCost::default() }], 0.5);
        assert_eq!([0.0, 2.0, 3.25, 9.0].map(freed), [-3.0, -1.0, 0.25, 0.5]);
        let head =
            |saved: f64| copies_at_end(&[&StageCost { saved, logits: 0.5, copied: 1.0, ..StageCost::default() }]);
        assert_eq!([0.0, 0.5, 1.0, 9.0].map(head), [1.0, 1.0, 0.5, 0.0]);
    }

    /// 32 ranks, with experts sharded over 16. While micro-batches accumulate, parameters are unsharded and dense gradients are in
    /// f32. With one micro-batch, only gathered parameters are unsharded.
    #[test]
    fn whole_parameters_lie_beside_their_parts() {
        let (cluster, stack) = (Cluster::find("gb200-nvl72").unwrap(), Stack::find("automodel-2026").unwrap());
        let bytes = |ep, microbatches, products| {
            let parallel = ParallelConfig { dp: 32, ep, zero: 3, ..ParallelConfig::default() };
            let recipe = Recipe { products, gradient: 2.0, ..Recipe::bf16() };
            let platform = Platform { cluster: &cluster, stack: &stack, recipe: &recipe };
            let elements = Elements::all_trained(SplitByExperts { dense: 32e9, experts: 2e9 });
            let whole = Whole::of(elements, &parallel, &Replicas::new(&parallel, microbatches, &platform));
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
        let elements = Elements::all_trained(SplitByExperts { dense: 1e9, experts: 0.0 });
        let (parallel, loads) = (ParallelConfig::default(), [StageCost { elements, ..StageCost::default() }]);
        let gradients = |forwards: f64, saved: f64| {
            let rank = Rank { stages: smallvec![runs(0, forwards)], saved, in_flight: 1.0, ..Rank::default() };
            let (replicas, flow) = (
                Replicas::new(&parallel, forwards as u32, &platform),
                PipelineTimeline { ranks: vec![rank], bubble: 0.0, path: None },
            );
            let ordered = OrderedStages {
                parallel: &parallel,
                replicas: &replicas,
                loads: &loads,
                tied: &[],
                flow: &flow,
                budget: 0.0,
            };
            (ordered.memory()[0].gradients * GIB).round()
        };
        assert_eq!([gradients(1.0, 0.5e9), gradients(1.0, 3e9), gradients(2.0, 0.5e9)], [1.5e9, 0.0, 2e9]);
    }

    #[test]
    fn sums_are_of_no_more_than_all_gradients() {
        let (cluster, stack) = (Cluster::find("v100-dgx2").unwrap(), Stack::find("megatron-deepspeed-2021").unwrap());
        let recipe = Recipe::bf16();
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &recipe };
        let bytes = |dense: f64| {
            let elements = Elements::all_trained(SplitByExperts { dense, experts: 0.0 });
            buffers(&[&StageCost { elements, ..StageCost::default() }], (1, &Rank::default()), 0.0, by(0), &platform)
        };
        assert_eq!([1e8, 1e9].map(bytes), [2e8, 1e9].map(|sums| stack.traits.memory.workspace + sums));
    }

    #[test]
    fn layers_go_backward_when_logits_are_gone() {
        let (layer, none) =
            (BlockPeak { transient: 3e9, elements: 1e8, trained: 1e8, ..BlockPeak::default() }, BlockPeak::default());
        let (cluster, mut stack) = (Cluster::find("h100").unwrap(), Stack::find("fsdp-compile").unwrap());
        let bytes = |stack: &Stack, logits: f64, zero: u8| {
            let platform = Platform { cluster: &cluster, stack, recipe: &Recipe::bf16() };
            within(layer, none, 0.0, logits, by(zero), &platform)
        };
        assert_eq!([bytes(&stack, 2e9, 0), bytes(&stack, 0.0, 2)], [1e9, 3e9 + 4e8]);
        // Parameters of 2e8 bytes go while as many bytes of gradients come.
        (stack.traits.saved.block_by_block, stack.traits.zero.scatters_narrow) = (true, true);
        assert_eq!([bytes(&stack, 0.0, 2), bytes(&stack, 0.0, 3)], [3e9 + 2e8, 3e9 + 2e8 * (4.0 / 3.0)]);
    }
}
