//! A model's runs cut into stages, and what each stage costs for one micro-batch.

use super::blocks::Blocks;
use super::replicas::Replicas;
use crate::error::Error;
use cost::{Cut, Profile, Seconds};
use ir::costs::{BlockCosts, CallCosts, Lanes, ModelCosts};
use ir::goal::{Layout, Recompute};
use scheduler::cut::{CutError, balanced, check_starts, stage_runs};
use scheduler::placement::Pipeline;
use std::ops::Range;

/// What a stage costs on one rank for one micro-batch.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Load {
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
    /// What is computed again before the input gradient.
    pub(super) again: Seconds,
    /// Seconds of messages that the stage waits for itself: with a forward, and as many with a backward.
    pub(super) messages: f64,
    /// Seconds of parameters gathered, and gradients scattered, that nothing hides: with the forward, with the backward.
    pub(super) shards: [f64; 2],
    /// Bytes kept from the forward to the backward.
    pub(super) kept: f64,
    /// Of these, logits and what the loss keeps.
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
    /// How many layers it has, and the bytes of the largest tensor that these give to a sum over tp.
    pub(super) summed: [f64; 2],
    /// The most elements of one run's parameters, of the same.
    pub(super) largest: [f64; 2],
    /// Elements of the parameters of all ends of the model that it has.
    pub(super) ends: f64,
    /// Bytes given to the next stage.
    pub(super) boundary: f64,
}

impl Load {
    /// Seconds of a forward, an input gradient with what is computed again for it, and a weight gradient.
    pub(super) fn seconds(&self) -> [f64; 3] {
        let [forward, backward] = self.shards;
        let (f, i) = (self.f.total() + forward, self.again.total() + self.i.total() + backward);
        [f + self.messages, i + self.messages, self.w.total()]
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

/// The first run of each stage: as the layout has it; else by parameters where the stack does so; else as many layers on each
/// stage, if they divide; else balanced by time, at best where a rank has one stage.
///
/// # Errors
/// The layout's starts do not fit the model, or it has fewer runs than stages.
pub(super) fn starts(blocks: &Blocks, layout: &Layout, cut: Cut, pipeline: &Pipeline) -> Result<Vec<usize>, Error> {
    let stages = pipeline.stages() as usize;
    if !layout.stages.is_empty() {
        let starts: Vec<usize> = [0].into_iter().chain(layout.stages.iter().map(|&start| start as usize)).collect();
        check_starts(&starts, pipeline, &costs(blocks))?;
        return Ok(starts);
    }
    let layers = blocks.outline.layers.len();
    let profile = |run: usize| &blocks.profiles[blocks.outline.runs[run]];
    if cut == Cut::Parameters {
        // An embedding has no products.
        let weight =
            |run| if run < blocks.outline.layers.start { 0.0 } else { profile(run).dense + profile(run).experts };
        return by_shares(&(0..blocks.outline.runs.len()).map(weight).collect::<Vec<f64>>(), stages);
    }
    if stages > 0 && layers > 0 && layers.is_multiple_of(stages) {
        let each = layers / stages;
        return Ok((0..stages)
            .map(|stage| if stage == 0 { 0 } else { blocks.outline.layers.start + stage * each })
            .collect());
    }
    if pipeline.stages() == pipeline.ranks {
        return Ok(balanced(&costs(blocks), pipeline, None)?);
    }
    let seconds = |profile: &Profile| [profile.f, profile.again, profile.i, profile.w].map(|part| part.total());
    let weights = (0..blocks.outline.runs.len()).map(|run| seconds(profile(run)).iter().sum());
    by_shares(&weights.collect::<Vec<f64>>(), stages)
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
    Err(CutError::TooMany { stages: u32::try_from(stages).unwrap_or(u32::MAX), runs }.into())
}

/// The profiles as costs that can be cut.
fn costs(blocks: &Blocks) -> ModelCosts {
    let lanes = |compute| Lanes { compute, wire: 0.0 };
    let of = |profile: &Profile| BlockCosts {
        f: lanes(profile.f.total()),
        i: lanes(profile.again.total() + profile.i.total()),
        w: lanes(profile.w.total()),
        ..BlockCosts::default()
    };
    ModelCosts {
        calls: blocks.outline.runs.iter().map(|&block| CallCosts { block, instances: 1 }).collect(),
        blocks: blocks.profiles.iter().map(of).collect(),
        ..ModelCosts::default()
    }
}

/// What each stage costs.
pub(super) fn loads(blocks: &Blocks, layout: &Layout, starts: &[usize], replicas: &Replicas<'_>) -> Vec<Load> {
    let most = most(layout);
    stage_runs(starts, blocks.outline.runs.len()).into_iter().map(|runs| load(blocks, runs, most, replicas)).collect()
}

/// What all of a model costs, as if it were one stage.
pub(super) fn run_loads(blocks: &Blocks, layout: &Layout, replicas: &Replicas<'_>) -> Load {
    load(blocks, 0..blocks.outline.runs.len(), most(layout), replicas)
}

/// What each stage keeps and holds if all layers are computed again that can be; seconds of gathers and scatters are left out.
pub(super) fn memory_loads(blocks: &Blocks, starts: &[usize]) -> Vec<Load> {
    stage_runs(starts, blocks.outline.runs.len()).into_iter().map(|runs| sum(blocks, runs, usize::MAX).0).collect()
}

/// The most layers of a stage that are computed again as a whole.
fn most(layout: &Layout) -> usize {
    match layout.recompute {
        Recompute::Full(Some(layers)) => layers as usize,
        _ => usize::MAX,
    }
}

/// How many layers there are between the ends.
pub(super) fn layers_of(blocks: &Blocks) -> usize {
    blocks.outline.layers.len()
}

fn load(blocks: &Blocks, runs: Range<usize>, most: usize, replicas: &Replicas<'_>) -> Load {
    let (mut load, of_stage) = sum(blocks, runs, most);
    load.shards = replicas.shards(&of_stage);
    load
}

/// What a stage costs but for what is gathered and scattered, and the profiles of its runs.
fn sum(blocks: &Blocks, runs: Range<usize>, most: usize) -> (Load, Vec<&Profile>) {
    let mut load = Load { runs: runs.clone(), ..Load::default() };
    let mut of_stage: Vec<&Profile> = Vec::with_capacity(runs.len());
    for run in runs.clone() {
        let again = blocks.again.as_ref().filter(|_| blocks.outline.layers.contains(&run) && load.whole < most);
        load.whole += usize::from(again.is_some());
        let profile = &again.unwrap_or(&blocks.profiles)[blocks.outline.runs[run]];
        load.add(profile, usize::from(!blocks.outline.layers.contains(&run)));
        load.tensors += blocks.outline.tensors[blocks.outline.runs[run]];
        of_stage.push(profile);
    }
    let shared = blocks.outline.tied.iter().map(|tied| {
        let here = tied.runs.iter().filter(|run| runs.contains(run)).count();
        here.saturating_sub(1) as f64 * tied.elements
    });
    load.dense -= shared.sum::<f64>();
    (load, of_stage)
}

impl Load {
    /// One more run: of a layer (0), of an end of the model (1).
    fn add(&mut self, profile: &Profile, place: usize) {
        self.f = plus(self.f, &profile.f, 1.0);
        self.i = plus(self.i, &profile.i, 1.0);
        self.w = plus(self.w, &profile.w, 1.0);
        self.again = plus(self.again, &profile.again, 1.0);
        self.kept += profile.kept;
        self.logits += profile.logits;
        self.held_for_w += profile.held_for_w;
        self.transient[place] = self.transient[place].max(profile.transient);
        self.dense += profile.dense;
        self.experts += profile.experts;
        if place == 0 {
            self.summed = [self.summed[0] + 1.0, self.summed[1].max(profile.summed)];
        }
        let elements = profile.dense + profile.experts;
        self.largest[place] = self.largest[place].max(elements);
        self.ends += place as f64 * elements;
        self.boundary = profile.boundary;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
