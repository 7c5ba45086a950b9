//! Partition of a model's block instances into stages, and the cost of each stage for one micro-batch.

use super::blocks::{Blocks, Span};
use super::replicas::{Exchange, Replicas, Row};
use compiler::error::Error;
use cost::{Cut, Platform, Profile, Seconds};
use ir::costs::{BlockCosts, CallCosts, ModelCosts, SectionSeconds};
use ir::options::{ParallelConfig, Recompute};
use scheduler::partition::{PartitionError, balanced, check_starts, stage_runs};
use scheduler::placement::{Pipeline, Placement};
use std::ops::Range;

/// Costs of a stage on one rank for one micro-batch.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct StageCost {
    /// Its runs.
    pub(super) runs: Range<usize>,
    /// How many of its layers are computed again as a whole.
    pub(super) whole: usize,
    /// The forward.
    pub(super) f: Seconds,
    /// The input gradient.
    pub(super) i: Seconds,
    /// The weight gradient.
    pub(super) w: Seconds,
    /// Seconds of recomputation before the input gradient.
    pub(super) again: Seconds,
    /// Seconds of messages that the stage waits for itself: with a forward, and as many with a backward.
    pub(super) messages: f64,
    /// Seconds of parameters gathered, and gradients scattered, that nothing hides: with the forward, with the backward.
    pub(super) shards: [f64; 2],
    /// Bytes kept from the forward to the backward on the device.
    pub(super) kept: f64,
    /// The same in the host's memory, instead.
    pub(super) offloaded: f64,
    /// The part of logits and of the values that the loss saves.
    pub(super) logits: f64,
    /// Bytes that wait for the weight gradient, once the input gradient is there.
    pub(super) held_for_w: f64,
    /// The most bytes of inner values at once: of a layer, of an end of the model.
    pub(super) transient: [f64; 2],
    /// Elements of parameters that all data-parallel ranks hold.
    pub(super) dense: f64,
    /// Elements of experts.
    pub(super) experts: f64,
    /// How many parameters it has.
    pub(super) tensors: usize,
    /// How many sums over tp its layers' forwards have, and the bytes of the largest tensor that these are given.
    pub(super) summed: [f64; 2],
    /// Seconds by which the device works longer than its CPU, forward and backward together.
    pub(super) lag: f64,
    /// The most elements of one run's parameters, of the same.
    pub(super) largest: [f64; 2],
    /// Elements of the parameters of all ends of the model that it has.
    pub(super) ends: f64,
    /// Bytes given to the next stage.
    pub(super) boundary: f64,
}

impl StageCost {
    /// Seconds of a forward, an input gradient with what is computed again for it, and a weight gradient.
    pub(super) fn seconds(&self) -> [f64; 3] {
        self.with_shards(self.shards)
    }

    /// The same if shards of parameters and gradients took so many.
    pub(super) fn with_shards(&self, [forward, backward]: [f64; 2]) -> [f64; 3] {
        let (f, i) = (self.f.total() + forward, self.again.total() + self.i.total() + backward);
        [f + self.messages, i + self.messages, self.w.total()]
    }

    /// Bytes kept from the forward to the backward, wherever they are.
    pub(super) fn saved(&self) -> f64 {
        self.kept + self.offloaded
    }
}

/// The sum of two, the second counted so many times.
pub(super) fn plus(sum: Seconds, more: &Seconds, times: f64) -> Seconds {
    Seconds {
        gemm: sum.gemm + times * more.gemm,
        attention: sum.attention + times * more.attention,
        memory_bound: sum.memory_bound + times * more.memory_bound,
        tp: sum.tp + times * more.tp,
        cp: sum.cp + times * more.cp,
        ep: sum.ep + times * more.ep,
        launch: sum.launch + times * more.launch,
    }
}

/// The first block instance of each stage, as a configuration gives them for all stages but the first.
///
/// # Errors
/// They do not fit the model.
pub(super) fn given_starts(blocks: &Blocks, given: &[u32], pipeline: &Pipeline) -> Result<Vec<usize>, Error> {
    let starts: Vec<usize> = [0].into_iter().chain(given.iter().map(|&start| start as usize)).collect();
    check_starts(&starts, pipeline, &costs(blocks))?;
    Ok(starts)
}

/// The first block instance of each stage: by parameters if the stack partitions so; else equally many layers on each stage,
/// if they divide; else balanced by time, optimally in a chain. Recomputation moves no layer.
///
/// # Errors
/// The model has fewer block instances than stages.
pub(super) fn starts(blocks: &Blocks, cut: Cut, pipeline: &Pipeline) -> Result<Vec<usize>, Error> {
    let stages = pipeline.stages() as usize;
    let profile = |run: usize| &blocks.profiles[blocks.outline.runs[run]];
    if cut == Cut::Parameters {
        // An embedding has no products.
        let weight =
            |run| if run < blocks.outline.layers.start { 0.0 } else { profile(run).dense + profile(run).experts };
        return by_shares(&(0..blocks.outline.runs.len()).map(weight).collect::<Vec<f64>>(), stages);
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
    by_shares(&(0..blocks.outline.runs.len()).map(|run| profile(run).work).collect::<Vec<f64>>(), stages)
}

/// A stage ends after the run with which the weights up to it reach its share, or when as many runs are left as stages.
fn by_shares(weights: &[f64], stages: usize) -> Result<Vec<usize>, Error> {
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
    if starts.len() == stages {
        return Ok(starts);
    }
    Err(PartitionError::TooMany { stages: u32::try_from(stages).unwrap_or(u32::MAX), runs }.into())
}

/// The profiles as costs that can be cut.
fn costs(blocks: &Blocks) -> ModelCosts {
    let of = |profile: &Profile| BlockCosts {
        f: SectionSeconds { compute: profile.work, collectives: 0.0 },
        ..BlockCosts::default()
    };
    ModelCosts {
        calls: blocks.outline.runs.iter().map(|&block| CallCosts { block, instances: 1 }).collect(),
        blocks: blocks.profiles.iter().map(of).collect(),
        ..ModelCosts::default()
    }
}

/// Costs of each stage.
pub(super) fn loads(
    blocks: &Blocks,
    parallel: &ParallelConfig,
    starts: &[usize],
    replicas: &Replicas<'_>,
) -> Vec<StageCost> {
    let exchanges = replicas.exchanges(&blocks.profiles);
    let of = |runs: Range<usize>| {
        let stays = runs.len() == 1;
        load(blocks, runs, parallel, (replicas, &exchanges), stays)
    };
    stage_runs(starts, blocks.outline.runs.len()).into_iter().map(of).collect()
}

/// Seconds of F, I and W of each stage, with nothing gathered, scattered or sent.
pub(super) fn seconds(blocks: &Blocks, parallel: &ParallelConfig, starts: &[usize]) -> Vec<[f64; 3]> {
    let most = most(parallel);
    let of = |runs: Range<usize>| {
        pieces(blocks, runs, most).fold([0.0; 3], |[f, i, w], Piece { profile, times, .. }| {
            let times = times as f64;
            let backward = profile.again.total() + profile.i.total();
            [f + times * profile.f.total(), i + times * backward, w + times * profile.w.total()]
        })
    };
    stage_runs(starts, blocks.outline.runs.len()).into_iter().map(of).collect()
}

/// Lower bound on the costs of a model as one stage. With several stages, each may have one block instance.
pub(super) fn run_loads(blocks: &Blocks, parallel: &ParallelConfig, replicas: &Replicas<'_>) -> StageCost {
    let (runs, exchanges) = (0..blocks.outline.runs.len(), replicas.exchanges(&blocks.profiles));
    let stays = runs.len() == 1 || parallel.pp > 1;
    load(blocks, runs, parallel, (replicas, &exchanges), stays)
}

/// Runs of one block on a stage.
pub(super) struct Count {
    /// The block.
    pub(super) block: usize,
    /// How many.
    pub(super) times: f64,
    /// True if they are layers.
    pub(super) are_layers: bool,
}

/// The runs of each stage.
pub(super) fn counts(blocks: &Blocks, starts: &[usize]) -> Vec<Vec<Count>> {
    let of_stage = |runs: Range<usize>| {
        let of_span = |span: &Span| {
            let times = span.within(&runs);
            (times > 0).then_some(Count { block: span.block, times: times as f64, are_layers: span.are_layers })
        };
        blocks.outline.spans.iter().filter_map(of_span).collect()
    };
    stage_runs(starts, blocks.outline.runs.len()).into_iter().map(of_stage).collect()
}

/// Memory of each stage with full recomputation; seconds of gathers and scatters are left out.
pub(super) fn memory_loads(blocks: &Blocks, starts: &[usize]) -> Vec<StageCost> {
    stage_runs(starts, blocks.outline.runs.len()).into_iter().map(|runs| sum(blocks, runs, usize::MAX)).collect()
}

/// The most layers of a stage that are computed again as a whole.
fn most(parallel: &ParallelConfig) -> usize {
    match parallel.recompute {
        Recompute::Full(Some(layers)) => layers as usize,
        _ => usize::MAX,
    }
}

/// Returns `true` if a stack partitions into stages of equally many layers.
pub(super) fn is_even(blocks: &Blocks, cut: Cut, stages: u32) -> bool {
    let layers = blocks.outline.layers.len();
    let divides = layers > 0 && stages > 0 && layers.is_multiple_of(stages as usize);
    cut == Cut::Time && divides
}

fn load(
    blocks: &Blocks,
    runs: Range<usize>,
    parallel: &ParallelConfig,
    (replicas, exchanges): (&Replicas<'_>, &[Exchange]),
    stays: bool,
) -> StageCost {
    let most = most(parallel);
    let pieces = || pieces(blocks, runs.clone(), most);
    let row = |Piece { profile, times, block, .. }| Row { profile, times, exchange: exchanges[block] };
    let shards = replicas.shards(pieces().map(row), stays);
    let mut load = StageCost { shards, ..sum(blocks, runs.clone(), most) };
    let peer = peer(parallel, replicas.platform);
    if peer > 0.0 {
        pieces().for_each(|piece| load.wait(&piece, peer));
    }
    load
}

/// Seconds of the CPU for each rank that a tensor-parallel collective joins.
fn peer(parallel: &ParallelConfig, platform: &Platform<'_>) -> f64 {
    let is_on_nodes = platform.cluster.links[0].joins < parallel.devices();
    if parallel.pp > 1 && is_on_nodes { platform.stack.facts.peer } else { 0.0 }
}

/// Runs of a stage that follow each other and cost the same.
struct Piece<'a> {
    block: usize,
    profile: &'a Profile,
    /// How many parameters a run has.
    tensors: usize,
    /// How many runs there are.
    times: usize,
    /// True if they are layers (0) or ends of the model (1).
    place: usize,
    /// True if they are layers that are computed again as a whole.
    is_whole: bool,
}

/// The runs of a stage; its first layers are computed again, if any are, up to `most`.
fn pieces<'a>(blocks: &'a Blocks, runs: Range<usize>, most: usize) -> impl Iterator<Item = Piece<'a>> {
    let mut left = most;
    let of_span = move |span: &Span| {
        let times = span.within(&runs);
        let again = blocks.again.as_ref().filter(|_| span.are_layers);
        let whole = again.map_or(0, |_| times.min(left));
        left -= whole;
        let (tensors, place) = (blocks.outline.tensors[span.block], usize::from(!span.are_layers));
        let some = |profiles: &'a [Profile], times: usize, is_whole: bool| {
            let profile = &profiles[span.block];
            (times > 0).then_some(Piece { block: span.block, profile, tensors, times, place, is_whole })
        };
        [again.and_then(|again| some(again, whole, true)), some(&blocks.profiles, times - whole, false)]
    };
    blocks.outline.spans.iter().flat_map(of_span).flatten()
}

/// Costs of a stage without gathers and scatters.
fn sum(blocks: &Blocks, runs: Range<usize>, most: usize) -> StageCost {
    let mut load = StageCost { runs: runs.clone(), ..StageCost::default() };
    pieces(blocks, runs.clone(), most).for_each(|piece| load.add(&piece));
    let shared = blocks.outline.tied.iter().map(|tied| {
        let here = tied.runs.iter().filter(|run| runs.contains(run)).count();
        here.saturating_sub(1) as f64 * tied.elements
    });
    load.dense -= shared.sum::<f64>();
    load
}

impl StageCost {
    fn add(&mut self, piece: &Piece<'_>) {
        let Piece { profile, tensors, times, place, is_whole, .. } = *piece;
        self.whole += if is_whole { times } else { 0 };
        self.tensors += times * tensors;
        let elements = profile.dense + profile.experts;
        self.largest[place] = self.largest[place].max(elements);
        self.transient[place] = self.transient[place].max(profile.transient);
        self.boundary = profile.boundary;
        let times = times as f64;
        if place == 0 {
            self.summed = [self.summed[0] + times * profile.sums, self.summed[1].max(profile.summed)];
        } else {
            self.ends += times * elements;
        }
        self.f = plus(self.f, &profile.f, times);
        self.i = plus(self.i, &profile.i, times);
        self.w = plus(self.w, &profile.w, times);
        self.again = plus(self.again, &profile.again, times);
        self.lag += times * profile.spare.iter().sum::<f64>();
        self.kept += times * profile.kept;
        self.offloaded += times * profile.offloaded;
        self.logits += times * profile.logits;
        self.held_for_w += times * profile.held_for_w;
        self.dense += times * profile.dense;
        self.experts += times * profile.experts;
    }

    /// Adds what the device waits for its CPU beyond the profiles' `launch`, where the CPU has so much to do for each rank of a
    /// collective.
    fn wait(&mut self, piece: &Piece<'_>, peer: f64) {
        let Piece { profile, times, .. } = *piece;
        let more = |part: usize| (profile.peers[part] * peer - profile.spare[part].max(0.0)).max(0.0);
        self.f.launch += times as f64 * more(0);
        self.i.launch += times as f64 * more(1);
        self.lag -= times as f64 * peer * profile.peers.iter().sum::<f64>();
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
        assert!(by_shares(&[1.0; 2], 3).is_err());
    }

    /// Ten and twenty ranks at 0.2 s each: forward the CPU has 1 s to spare, backward the device waits for it already.
    #[test]
    fn the_device_waits_for_what_its_cpu_does_for_each_peer() {
        let mut load = StageCost::default();
        let profile = Profile { spare: [1.0, -0.5], peers: [10.0, 20.0], ..Profile::default() };
        load.wait(&Piece { block: 0, profile: &profile, tensors: 1, times: 1, place: 0, is_whole: false }, 0.2);
        assert_eq!((load.f.launch, load.i.launch), (1.0, 4.0));
        load.wait(&Piece { block: 0, profile: &profile, tensors: 1, times: 1, place: 0, is_whole: false }, 0.05);
        assert_eq!((load.f.launch, load.i.launch), (1.0, 5.0));
    }

    #[test]
    fn peers_cost_in_pipelines_over_nodes_alone() {
        let (cluster, stack) = (Cluster::find("h100-p5-efa").unwrap(), Stack::find("nanotron-2024").unwrap());
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
        let of = |dp, pp| peer(&ParallelConfig { dp, pp, tp: 2, ..ParallelConfig::default() }, &platform);
        assert_eq!([of(2, 2), of(8, 1), of(4, 2)], [0.0, 0.0, stack.facts.peer]);
    }
}
