//! Partition of a model's block instances into stages, and the cost of each stage for one micro-batch.

use super::blocks::{Blocks, Span};
use super::error::Error;
use super::quantities::{BlockPeak, PerSection, TpReductions};
use super::replicas::{Exchange, Repeated, Replicas};
use cost::{Cut, Elements, Passes, Platform, Profile, Seconds};
use ir::costs::{BlockCosts, CallCosts, ModelCosts, SectionSeconds};
use ir::options::{Offload, ParallelConfig, Recompute};
use scheduler::partition::{PartitionError, balanced, check_starts, stage_runs};
use scheduler::placement::{Pipeline, Placement};
use smallvec::SmallVec;
use std::ops::Range;

/// Cost of a stage on one rank for one micro-batch.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct StageCost {
    /// Its block instances.
    pub(super) runs: Range<usize>,
    /// Number of its layers that are recomputed as a whole.
    pub(super) whole: usize,
    /// The forward.
    pub(super) f: Seconds,
    /// The input gradient.
    pub(super) i: Seconds,
    /// The weight gradient.
    pub(super) w: Seconds,
    /// Recomputation before the input gradient.
    pub(super) recomputed: Seconds,
    /// Seconds of messages that block the stage, in a forward, and the same number in a backward.
    pub(super) messages: f64,
    /// Exposed seconds of parameter gathers and gradient scatters.
    pub(super) shards: Passes,
    /// Saved activations on the device, in bytes.
    pub(super) saved: f64,
    /// Saved activations in host memory, in bytes.
    pub(super) offloaded: f64,
    /// The most bytes that a layer offloads.
    pub(super) copied: f64,
    /// Part of `saved` for logits and for the loss.
    pub(super) logits: f64,
    /// Bytes that stay in memory between the input gradient and the weight gradient.
    pub(super) saved_for_w: f64,
    /// Peaks over its layers.
    pub(super) layer: BlockPeak,
    /// Peaks over those that are not recomputed as a whole.
    pub(super) ordinary: BlockPeak,
    /// Bytes that these save, and those of them that stay in memory between the gradients.
    pub(super) ordinary_saved: [f64; 2],
    /// Peaks over the ends of the model that it has.
    pub(super) end: BlockPeak,
    /// Elements of its parameters on one rank before ZeRO.
    pub(super) elements: Elements,
    /// Number of trained parameters.
    pub(super) tensors: usize,
    /// Reductions over tp in the forward of its layers.
    pub(super) reductions: TpReductions,
    /// Device seconds minus CPU seconds, forward and backward together.
    pub(super) lag: f64,
    /// Parameter elements of the ends of the model that it has.
    pub(super) ends: f64,
    /// Bytes sent to the next stage.
    pub(super) boundary: f64,
}

impl StageCost {
    /// Seconds of each section; recomputation counts with the input gradient.
    pub(super) fn seconds(&self) -> PerSection {
        self.with_shards(self.shards)
    }

    /// The same with other exposed seconds of parameter gathers and gradient scatters.
    pub(super) fn with_shards(&self, shards: Passes) -> PerSection {
        let (f, i) = (self.f.total() + shards.forward, self.recomputed.total() + self.i.total() + shards.backward);
        PerSection { f: f + self.messages, i: i + self.messages, w: self.w.total() }
    }

    /// Peaks over its layers. Layers that are recomputed as a whole are its first ones: when they run backward, the others have freed what
    /// they saved, but for what W reads if it is apart. What a layer's I leaves for W is then in the saved activations already.
    pub(super) fn layer_in_order(&self, splits: bool) -> BlockPeak {
        let [saved, for_w] = self.ordinary_saved;
        let freed = if splits { (saved - for_w).max(0.0) } else { saved };
        let alone =
            |peak: BlockPeak| BlockPeak { transient: if splits { peak.beyond_left } else { peak.transient }, ..peak };
        let layer = alone(self.layer);
        alone(self.ordinary).max(BlockPeak { transient: layer.transient - freed, in_w: layer.in_w - freed, ..layer })
    }

    /// Saved activations on the device and in host memory, in bytes.
    pub(super) fn saved_anywhere(&self) -> f64 {
        self.saved + self.offloaded
    }
}

/// Sum of the first, and `times` the second.
pub(super) fn plus(sum: Seconds, more: &Seconds, times: f64) -> Seconds {
    Seconds {
        gemm: sum.gemm + times * more.gemm,
        attention: sum.attention + times * more.attention,
        memory_bound: sum.memory_bound + times * more.memory_bound,
        tp: sum.tp + times * more.tp,
        cp: sum.cp + times * more.cp,
        ep: sum.ep + times * more.ep,
        launch: sum.launch + times * more.launch,
        host: sum.host + times * more.host,
    }
}

/// First block instance of each stage, as a configuration states them for all stages but the first.
///
/// # Errors
/// The starts do not fit the model.
pub(super) fn given_starts(blocks: &Blocks, given: &[u32], pipeline: &Pipeline) -> Result<Vec<usize>, Error> {
    let starts: Vec<usize> = [0].into_iter().chain(given.iter().map(|&start| start as usize)).collect();
    check_starts(&starts, pipeline, &costs(blocks))?;
    Ok(starts)
}

/// First block instance of each stage. A stack partitions by parameters or by time. By time, all stages have the same number of
/// layers if the number divides; otherwise they are balanced, optimally in a chain. Recomputation moves no layer.
///
/// # Errors
/// The model has fewer block instances than stages.
pub(super) fn starts(blocks: &Blocks, cut: Cut, pipeline: &Pipeline) -> Result<Vec<usize>, Error> {
    let (stages, runs) = (pipeline.stages() as usize, blocks.outline.runs.len());
    let too_many = || PartitionError::TooMany { stages: pipeline.stages(), ranks: pipeline.ranks, runs }.into();
    let profile = |run: usize| &blocks.profiles[blocks.outline.runs[run]];
    if cut == Cut::Parameters {
        // An embedding has no matrix products.
        let weight = |run| if run < blocks.outline.layers.start { 0.0 } else { profile(run).elements.all.total() };
        let weights: Vec<f64> = (0..runs).map(weight).collect();
        return by_shares(&weights, stages).ok_or_else(too_many);
    }
    if is_even(blocks, cut, pipeline.stages()) {
        let each = blocks.outline.layers.len() / stages;
        return Ok((0..stages)
            .map(|stage| if stage == 0 { 0 } else { blocks.outline.layers.start + stage * each })
            .collect());
    }
    if pipeline.placement == Placement::Chain {
        return Ok(balanced(&costs(blocks), pipeline, None)?);
    }
    let weights: Vec<f64> = (0..runs).map(|run| profile(run).work).collect();
    by_shares(&weights, stages).ok_or_else(too_many)
}

/// Partition by weights: a stage ends after the block instance with which the cumulative weight reaches its share, or earlier
/// if only one instance remains per later stage.
fn by_shares(weights: &[f64], stages: usize) -> Option<Vec<usize>> {
    let (runs, total): (usize, f64) = (weights.len(), weights.iter().sum());
    let (mut starts, mut sum) = (vec![0], 0.0);
    for (run, weight) in weights.iter().enumerate() {
        sum += weight;
        let (ended, left) = (starts.len(), runs - run - 1);
        let reached = sum >= total * ended as f64 / stages as f64;
        if ended < stages && left > 0 && (reached || left == stages - ended) {
            starts.push(run + 1);
        }
    }
    (starts.len() == stages).then_some(starts)
}

/// Costs of the model for the scheduler's partition.
fn costs(blocks: &Blocks) -> ModelCosts {
    let cost = |profile: &Profile| BlockCosts {
        f: SectionSeconds { compute: profile.work, collectives: 0.0 },
        ..BlockCosts::default()
    };
    ModelCosts {
        calls: blocks.outline.runs.iter().map(|&block| CallCosts { block, instances: 1 }).collect(),
        blocks: blocks.profiles.iter().map(cost).collect(),
        ..ModelCosts::default()
    }
}

/// Cost of each stage.
pub(super) fn loads(
    blocks: &Blocks,
    parallel: &ParallelConfig,
    starts: &[usize],
    replicas: &Replicas<'_>,
) -> Vec<StageCost> {
    let exchanges = replicas.exchanges(&blocks.profiles);
    let stage = |runs: Range<usize>| {
        let stays = runs.len() == 1;
        load(blocks, runs, parallel, &Collectives { replicas, exchanges: &exchanges, stays })
    };
    placed(of_each(blocks, starts, stage), starts, blocks)
}

/// Figures of each stage. Consecutive stages with as many instances of one block are alike, unless instances share a parameter: their
/// figures are computed once.
fn of_each<T: Clone>(blocks: &Blocks, starts: &[usize], of: impl Fn(Range<usize>) -> T) -> Vec<T> {
    let mut all: Vec<T> = Vec::with_capacity(starts.len());
    let mut last = None;
    for runs in stage_runs(starts, blocks.outline.runs.len()) {
        let content = blocks.outline.only_block(&runs);
        let known = all.last().filter(|_| content.is_some() && content == last).cloned();
        all.push(known.unwrap_or_else(|| of(runs)));
        last = content;
    }
    all
}

/// Costs with the block instances of their own stages.
fn placed(mut costs: Vec<StageCost>, starts: &[usize], blocks: &Blocks) -> Vec<StageCost> {
    for (cost, runs) in costs.iter_mut().zip(stage_runs(starts, blocks.outline.runs.len())) {
        cost.runs = runs;
    }
    costs
}

/// Seconds of each stage without gathers, scatters and messages.
pub(super) fn seconds(blocks: &Blocks, parallel: &ParallelConfig, starts: &[usize]) -> Vec<PerSection> {
    let most = Leading::of(parallel);
    let of_piece = |Piece { profile, times, .. }: Piece<'_>| {
        let i = profile.recomputed.total() + profile.i.total();
        PerSection { f: profile.f.total(), i, w: profile.w.total() } * times as f64
    };
    of_each(blocks, starts, |runs| pieces(blocks, runs, most).map(of_piece).sum())
}

/// Lower bound on the cost of a model on all stages together. With several stages, each may have one block instance.
pub(super) fn run_loads(blocks: &Blocks, parallel: &ParallelConfig, replicas: &Replicas<'_>) -> StageCost {
    let (runs, exchanges) = (0..blocks.outline.runs.len(), replicas.exchanges(&blocks.profiles));
    let stays = runs.len() == 1 || parallel.pp > 1;
    load(blocks, runs, parallel, &Collectives { replicas, exchanges: &exchanges, stays })
}

/// Instances of one block on a stage.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Count {
    pub(super) block: usize,
    /// Number of instances.
    pub(super) times: f64,
    /// `true` if they are layers.
    pub(super) are_layers: bool,
}

/// Block instances of a stage. Most stages have instances of one or two blocks.
pub(super) type StageCounts = SmallVec<[Count; 3]>;

/// Kinds of stages by their block instances: most stages of a pipeline are alike.
pub(super) struct StageKinds {
    kinds: SmallVec<[StageCounts; 6]>,
    /// The kind of each stage.
    of: SmallVec<[usize; 64]>,
}

impl StageKinds {
    /// The kinds of the stages that begin at `starts`.
    pub(super) fn of(blocks: &Blocks, starts: &[usize]) -> StageKinds {
        let mut all = StageKinds { kinds: SmallVec::new(), of: SmallVec::with_capacity(starts.len()) };
        for runs in stage_runs(starts, blocks.outline.runs.len()) {
            let counts = StageKinds::counts(blocks, &runs);
            let kind = all.kinds.iter().rposition(|kind| *kind == counts).unwrap_or(all.kinds.len());
            if kind == all.kinds.len() {
                all.kinds.push(counts);
            }
            all.of.push(kind);
        }
        all
    }

    /// Block instances of a stage with these runs.
    fn counts(blocks: &Blocks, runs: &Range<usize>) -> StageCounts {
        let of_span = |span: &Span| {
            let times = span.within(runs);
            (times > 0).then_some(Count { block: span.block, times: times as f64, are_layers: span.are_layers })
        };
        blocks.outline.spans.iter().filter_map(of_span).collect()
    }

    /// Figures of all stages, computed once for each kind.
    pub(super) fn each<T>(&self, figure: impl Fn(&[Count]) -> T) -> ByStage<'_, T> {
        ByStage { figures: self.kinds.iter().map(|counts| figure(counts)).collect(), of: &self.of }
    }
}

/// Figures of all stages, those of stages of one kind once.
pub(super) struct ByStage<'a, T> {
    figures: SmallVec<[T; 6]>,
    /// The kind of each stage.
    of: &'a [usize],
}

impl<T> ByStage<'_, T> {
    /// The figure of a stage.
    pub(super) fn at(&self, stage: usize) -> &T {
        &self.figures[self.of[stage]]
    }

    /// Other figures that follow from these.
    pub(super) fn map<U>(&self, figure: impl FnMut(&T) -> U) -> ByStage<'_, U> {
        ByStage { figures: self.figures.iter().map(figure).collect(), of: self.of }
    }

    /// The figures of the stages, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.of.iter().map(|&kind| &self.figures[kind])
    }
}

/// Cost of each stage if all layers that can be are recomputed, without gathers and scatters; used for memory.
pub(super) fn memory_loads(blocks: &Blocks, starts: &[usize]) -> Vec<StageCost> {
    let all = Leading { recomputed: usize::MAX, offloaded: usize::MAX };
    placed(of_each(blocks, starts, |runs| sum(blocks, runs, all)), starts, blocks)
}

/// Largest numbers of layers at the beginning of a stage that save less.
#[derive(Clone, Copy)]
struct Leading {
    /// Layers that are recomputed as a whole.
    recomputed: usize,
    /// Layers that are offloaded where others are not.
    offloaded: usize,
}

impl Leading {
    fn of(parallel: &ParallelConfig) -> Leading {
        let recomputed = match parallel.recompute {
            Recompute::Full(Some(layers)) => layers as usize,
            _ => usize::MAX,
        };
        let offloaded = match parallel.offload {
            Offload::All(Some(layers)) => layers as usize,
            _ => 0,
        };
        Leading { recomputed, offloaded }
    }
}

/// Returns `true` if all stages have the same number of layers. Those of an encoder in front of the embedding are others than those behind.
pub(super) fn is_even(blocks: &Blocks, cut: Cut, stages: u32) -> bool {
    let layers = blocks.outline.layers.len();
    let divides = layers > 0 && stages > 0 && layers.is_multiple_of(stages as usize);
    cut == Cut::Time && divides && blocks.outline.front <= 1
}

/// Collectives of a stage over data-parallel ranks.
struct Collectives<'a> {
    replicas: &'a Replicas<'a>,
    /// Seconds of an instance of each block.
    exchanges: &'a [Exchange],
    /// `true` if parameters stay gathered from the forward to the backward.
    stays: bool,
}

/// Cost of a stage with these block instances.
fn load(blocks: &Blocks, runs: Range<usize>, parallel: &ParallelConfig, collectives: &Collectives<'_>) -> StageCost {
    let Collectives { replicas, exchanges, stays } = *collectives;
    let most = Leading::of(parallel);
    let pieces = || pieces(blocks, runs.clone(), most);
    let repeated = |Piece { profile, times, block, .. }| Repeated { profile, times, exchange: exchanges[block] };
    let shards = replicas.shards(pieces().map(repeated), stays);
    let mut load = StageCost { shards, ..sum(blocks, runs.clone(), most) };
    let peer = peer(parallel, replicas.platform);
    if peer > 0.0 {
        pieces().for_each(|piece| load.wait(&piece, peer));
    }
    load
}

/// CPU seconds per rank of a tensor-parallel collective.
fn peer(parallel: &ParallelConfig, platform: &Platform<'_>) -> f64 {
    let is_on_nodes = platform.cluster.links[0].joins < parallel.devices();
    if parallel.pp > 1 && is_on_nodes { platform.stack.traits.network.peer } else { 0.0 }
}

/// Consecutive block instances of a stage with the same cost.
struct Piece<'a> {
    block: usize,
    profile: &'a Profile,
    /// Number of trained parameters of an instance.
    tensors: usize,
    /// Number of instances.
    times: usize,
    /// `true` for layers, `false` for ends of the model.
    are_layers: bool,
    /// `true` for layers that are recomputed as a whole.
    is_whole: bool,
}

/// Pieces of a stage. Its first layers are recomputed, and its first layers are offloaded, if any are.
fn pieces<'a>(blocks: &'a Blocks, runs: Range<usize>, most: Leading) -> impl Iterator<Item = Piece<'a>> {
    let mut left = most;
    let of_span = move |span: &Span| {
        let times = span.within(&runs);
        let recomputed = blocks.recomputed.as_ref().filter(|_| span.are_layers);
        let on_host = blocks.on_host.as_ref().filter(|_| span.are_layers);
        let whole = recomputed.map_or(0, |_| times.min(left.recomputed));
        let away = on_host.map_or(0, |_| times.min(left.offloaded));
        left.recomputed -= whole;
        left.offloaded -= away;
        let (tensors, are_layers) = (blocks.outline.tensors[span.block], span.are_layers);
        let some = |from: usize, to: usize| {
            let (is_whole, is_away) = (from < whole, from < away);
            let place = on_host.filter(|_| is_away).map_or(blocks, |on_host| on_host);
            let profiles = place.recomputed.as_ref().filter(|_| is_whole).unwrap_or(&place.profiles);
            let (profile, times) = (&profiles[span.block], to - from);
            (times > 0).then_some(Piece { block: span.block, profile, tensors, times, are_layers, is_whole })
        };
        let (first, second) = (whole.min(away), whole.max(away));
        [some(0, first), some(first, second), some(second, times)]
    };
    blocks.outline.spans.iter().flat_map(of_span).flatten()
}

/// Cost of a stage without gathers and scatters.
fn sum(blocks: &Blocks, runs: Range<usize>, most: Leading) -> StageCost {
    let mut load = StageCost { runs: runs.clone(), ..StageCost::default() };
    pieces(blocks, runs.clone(), most).for_each(|piece| load.add(&piece));
    let shared = blocks.outline.tied.iter().map(|tied| {
        let here = tied.runs.iter().filter(|run| runs.contains(run)).count();
        tied.elements(-(here.saturating_sub(1) as f64))
    });
    load.elements = load.elements + shared.sum();
    load
}

impl StageCost {
    fn add(&mut self, piece: &Piece<'_>) {
        let Piece { profile, tensors, times, are_layers, is_whole, .. } = *piece;
        self.whole += if is_whole { times } else { 0 };
        self.tensors += times * tensors;
        let (transient, in_w) = (profile.transient, profile.transient_in_w);
        let left = (profile.saved_for_w - profile.saved - profile.offloaded).max(0.0);
        let (elements, trained) = (profile.elements.all.total(), profile.elements.trained.total());
        let in_w_apart = in_w - profile.made_for_w;
        let peak = BlockPeak { transient, beyond_left: transient - left, in_w, in_w_apart, elements, trained };
        self.boundary = profile.boundary;
        let times = times as f64;
        if are_layers {
            self.layer = self.layer.max(peak);
            if !is_whole {
                self.ordinary = self.ordinary.max(peak);
                self.ordinary_saved[0] += times * profile.saved;
                self.ordinary_saved[1] += times * profile.saved_for_w;
            }
            self.copied = self.copied.max(profile.offloaded);
            let TpReductions { count, largest_input } = &mut self.reductions;
            (*count, *largest_input) = (*count + times * profile.sums, largest_input.max(profile.summed));
        } else {
            self.end = self.end.max(peak);
            self.ends += times * peak.elements;
        }
        self.f = plus(self.f, &profile.f, times);
        self.i = plus(self.i, &profile.i, times);
        self.w = plus(self.w, &profile.w, times);
        self.recomputed = plus(self.recomputed, &profile.recomputed, times);
        self.lag += times * profile.spare.total();
        self.saved += times * profile.saved;
        self.offloaded += times * profile.offloaded;
        self.logits += times * profile.logits;
        self.saved_for_w += times * profile.saved_for_w;
        self.elements = self.elements + profile.elements * times;
    }

    /// Adds the launch wait beyond that of the profiles, if the CPU takes `peer` seconds per rank of a collective.
    fn wait(&mut self, piece: &Piece<'_>, peer: f64) {
        let Piece { profile, times, .. } = *piece;
        let more = |peers: f64, spare: f64| (peers * peer - spare.max(0.0)).max(0.0);
        self.f.launch += times as f64 * more(profile.peers.forward, profile.spare.forward);
        self.i.launch += times as f64 * more(profile.peers.backward, profile.spare.backward);
        self.lag -= times as f64 * peer * profile.peers.total();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cost::{Cluster, Recipe, Stack};

    /// 32 layers and a head of four times their products; nanotron leaves the last stage the head alone.
    #[test]
    fn a_stage_ends_where_its_share_is_reached() {
        let weights: Vec<f64> = [0.0].into_iter().chain([1.0; 32]).chain([2.4]).collect();
        let starts = by_shares(&weights, 16).unwrap();
        let layers: Vec<usize> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!((layers[0], starts.len(), starts[15]), (4, 16, 33), "{starts:?}");
        assert_eq!(by_shares(&[1.0; 4], 4).unwrap(), [0, 1, 2, 3]);
        assert_eq!(by_shares(&[0.0, 0.0, 1.0], 3).unwrap(), [0, 1, 2]);
        assert!(by_shares(&[1.0; 2], 3).is_none());
    }

    /// A layer that saves 1 byte, computes 8 more again and leaves 5 for W: after I all layers hold 5 each, and one runs with 9.
    #[test]
    fn what_is_left_for_w_is_held_once() {
        let profile = Profile { saved: 1.0, saved_for_w: 5.0, transient: 8.0, ..Profile::default() };
        let mut load = StageCost::default();
        load.add(&Piece { block: 0, profile: &profile, tensors: 1, times: 3, are_layers: true, is_whole: true });
        assert_eq!((load.saved, load.saved_for_w), (3.0, 15.0));
        let [split, one] = [true, false].map(|splits| load.layer_in_order(splits).transient);
        assert_eq!((load.saved_for_w + split, one), (2.0 * 5.0 + 9.0, 8.0));
    }

    /// Ten and twenty ranks at 0.2 s each: forward the CPU has 1 s to spare, backward the device waits for it already.
    #[test]
    fn the_device_waits_for_what_its_cpu_does_for_each_peer() {
        let mut load = StageCost::default();
        let spare = Passes { forward: 1.0, backward: -0.5 };
        let peers = Passes { forward: 10.0, backward: 20.0 };
        let profile = Profile { spare, peers, ..Profile::default() };
        let piece = Piece { block: 0, profile: &profile, tensors: 1, times: 1, are_layers: true, is_whole: false };
        load.wait(&piece, 0.2);
        assert_eq!((load.f.launch, load.i.launch), (1.0, 4.0));
        load.wait(&piece, 0.05);
        assert_eq!((load.f.launch, load.i.launch), (1.0, 5.0));
    }

    #[test]
    fn peers_cost_in_pipelines_over_nodes_alone() {
        let (cluster, stack) = (Cluster::find("h100-p5-efa").unwrap(), Stack::find("nanotron-2024").unwrap());
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
        let of = |dp, pp| peer(&ParallelConfig { dp, pp, tp: 2, ..ParallelConfig::default() }, &platform);
        assert_eq!([of(2, 2), of(8, 1), of(4, 2)], [0.0, 0.0, stack.traits.network.peer]);
    }
}
