//! A model's runs cut into stages, and what each stage costs for one micro-batch.

use super::blocks::{Blocks, Planned};
use super::replicas::Replicas;
use crate::error::Error;
use cost::{Profile, Seconds};
use ir::costs::{BlockCosts, CallCosts, Lanes, ModelCosts};
use ir::goal::{Layout, Recompute};
use scheduler::cut::{balanced, check_starts, stage_runs};
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
    /// Seconds of parameters gathered, and gradients scattered, that nothing hides: with the forward, with the backward.
    pub(super) shards: [f64; 2],
    /// Bytes kept from the forward to the backward.
    pub(super) kept: f64,
    /// Of these, logits and what the loss keeps.
    pub(super) logits: f64,
    /// The most bytes of inner values at once.
    pub(super) transient: f64,
    /// Elements of parameters that all data-parallel ranks hold.
    pub(super) dense: f64,
    /// Elements of experts.
    pub(super) experts: f64,
    /// The most elements of one run's parameters.
    pub(super) largest: f64,
    /// Bytes given to the next stage.
    pub(super) boundary: f64,
}

impl Load {
    /// Seconds of a forward, an input gradient with what is computed again for it, and a weight gradient.
    pub(super) fn seconds(&self) -> [f64; 3] {
        let [forward, backward] = self.shards;
        [self.f.total() + forward, self.again.total() + self.i.total() + backward, self.w.total()]
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

/// The first run of each stage: as the layout has it; else as many layers on each stage, if they divide; else balanced by
/// cost.
///
/// # Errors
/// The layout's starts do not fit the model, or it has fewer runs than stages.
pub(super) fn starts(
    planned: &Planned,
    blocks: &Blocks,
    layout: &Layout,
    pipeline: &Pipeline,
) -> Result<Vec<usize>, Error> {
    let stages = pipeline.stages() as usize;
    if !layout.stages.is_empty() {
        let starts: Vec<usize> = [0].into_iter().chain(layout.stages.iter().map(|&start| start as usize)).collect();
        check_starts(&starts, pipeline, &costs(planned, blocks))?;
        return Ok(starts);
    }
    let layers = planned.layers.len();
    if stages > 0 && layers > 0 && layers.is_multiple_of(stages) {
        let each = layers / stages;
        return Ok((0..stages).map(|stage| if stage == 0 { 0 } else { planned.layers.start + stage * each }).collect());
    }
    Ok(balanced(&costs(planned, blocks), pipeline, None)?)
}

/// The profiles as costs that can be cut.
fn costs(planned: &Planned, blocks: &Blocks) -> ModelCosts {
    let lanes = |compute| Lanes { compute, wire: 0.0 };
    let of = |profile: &Profile| BlockCosts {
        f: lanes(profile.f.total()),
        i: lanes(profile.again.total() + profile.i.total()),
        w: lanes(profile.w.total()),
        ..BlockCosts::default()
    };
    ModelCosts {
        calls: planned.runs.iter().map(|&block| CallCosts { block, instances: 1 }).collect(),
        blocks: blocks.profiles.iter().map(of).collect(),
        ..ModelCosts::default()
    }
}

/// What each stage costs.
pub(super) fn loads(
    planned: &Planned,
    blocks: &Blocks,
    layout: &Layout,
    starts: &[usize],
    replicas: &Replicas<'_>,
) -> Vec<Load> {
    let most = match layout.recompute {
        Recompute::Full(Some(layers)) => layers as usize,
        _ => usize::MAX,
    };
    stage_runs(starts, planned.runs.len()).into_iter().map(|runs| load(planned, blocks, runs, most, replicas)).collect()
}

fn load(planned: &Planned, blocks: &Blocks, runs: Range<usize>, most: usize, replicas: &Replicas<'_>) -> Load {
    let mut load = Load { runs: runs.clone(), ..Load::default() };
    let mut of_stage: Vec<&Profile> = Vec::with_capacity(runs.len());
    for run in runs.clone() {
        let again = blocks.again.as_ref().filter(|_| planned.layers.contains(&run) && load.whole < most);
        load.whole += usize::from(again.is_some());
        let profile = &again.unwrap_or(&blocks.profiles)[planned.runs[run]];
        load.add(profile);
        of_stage.push(profile);
    }
    let shared = planned.tied.iter().map(|tied| {
        let here = tied.runs.iter().filter(|run| runs.contains(run)).count();
        here.saturating_sub(1) as f64 * tied.elements
    });
    load.dense -= shared.sum::<f64>();
    load.shards = replicas.shards(&of_stage);
    load
}

impl Load {
    fn add(&mut self, profile: &Profile) {
        self.f = plus(self.f, &profile.f, 1.0);
        self.i = plus(self.i, &profile.i, 1.0);
        self.w = plus(self.w, &profile.w, 1.0);
        self.again = plus(self.again, &profile.again, 1.0);
        self.kept += profile.kept;
        self.logits += profile.logits;
        self.transient = self.transient.max(profile.transient);
        self.dense += profile.dense;
        self.experts += profile.experts;
        self.largest = self.largest.max(profile.dense + profile.experts);
        self.boundary = profile.boundary;
    }
}
