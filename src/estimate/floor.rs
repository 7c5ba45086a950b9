//! What no layout of a family goes below: the same step and memory with a flow that no order beats.

use super::blocks::Blocks;
use super::memory::{ModelStates, memory};
use super::pipeline::{Flow, least};
use super::replicas::Replicas;
use super::stages::{Load, layers_of, loads, memory_loads, run_loads};
use super::step::step;
use cost::{Cut, Format, Machine, Recipe};
use ir::goal::Layout;
use scheduler::placement::{Pipeline, Placement};
use scheduler::schedules::ScheduleKind;

/// Seconds of a step and bytes of the fullest device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Floor {
    /// Seconds.
    pub(crate) seconds: f64,
    /// Bytes.
    pub(crate) bytes: f64,
}

/// A model's blocks under a layout, priced twice: where of all that is open what takes least time is chosen, and where what
/// keeps least is.
pub(super) struct Open<'a> {
    pub(super) layout: &'a Layout,
    pub(super) machine: &'a Machine<'a>,
    pub(super) microbatches: u32,
    pub(super) fast: &'a Blocks,
    pub(super) small: &'a Blocks,
    /// Whether both are the same because nothing is open.
    pub(super) is_one: bool,
}

impl Open<'_> {
    /// Of any pipeline: the mean rank. Some rank works as long as the mean or longer, and the update of some rank is of as many
    /// elements as the mean or more; cutting a model into stages never hides more of what ZeRO gathers and scatters. What a
    /// layout exchanges once a step, and where it waits, is not counted.
    pub(super) fn mean(&self) -> Floor {
        let (layout, pp) = (self.layout, self.layout.pp as f64);
        let replicas = Replicas::new(layout, self.microbatches, self.machine);
        let load = run_loads(self.fast, layout, &replicas);
        let microbatches = f64::from(self.microbatches);
        let work = microbatches * load.seconds().iter().sum::<f64>() / pp;
        let elements = [load.dense / pp, load.experts / pp];
        let [dense, experts] = replicas.parts();
        let local =
            if layout.zero > 0 { elements[0] / dense + elements[1] / experts } else { elements[0] + elements[1] };
        let fixed = self.machine.stack.fitted.step_ms.value * 1e-3;
        let path = work + super::step::optimizer(local, self.machine) + fixed;
        let states = ModelStates::of(elements, replicas.parts(), replicas.zero, self.machine.recipe).total();
        let facts = &self.machine.stack.facts;
        let kept_of = |run: &usize| self.small.again.as_ref().unwrap_or(&self.small.profiles)[*run].kept;
        let kept = self.small.outline.runs.iter().map(kept_of).sum::<f64>() / pp;
        Floor {
            seconds: path * self.machine.stragglers(layout.devices()),
            bytes: (states + kept) * facts.reserve + facts.context,
        }
    }

    /// What is `known`, or the time until a pipeline is filled and the work that then follows. The last rank of a chain or a
    /// loop begins when the first micro-batch has gone through as many stages as there are ranks before it; so does that of
    /// a V, which has no end of the model; of two chains those in the middle begin after half as many.
    pub(super) fn filled(&self, kind: &ScheduleKind, pipeline: &Pipeline, known: Floor) -> Floor {
        let cut = self.machine.stack.facts.cut;
        if !is_even(self.fast, self.layout, cut, pipeline.stages()) {
            return if pipeline.placement == Placement::Chain { self.chained(kind, pipeline, known) } else { known };
        }
        let outline = &self.fast.outline;
        let seconds = |run: usize| {
            let profile = &self.fast.profiles[outline.runs[run]];
            [profile.f, profile.i, profile.w].map(|part| part.total())
        };
        let (mut forward, mut least) = (f64::INFINITY, f64::INFINITY);
        let mut seen = usize::MAX;
        for run in
            outline.layers.clone().filter(|&run| std::mem::replace(&mut seen, outline.runs[run]) != outline.runs[run])
        {
            let [f, i, w] = seconds(run);
            (forward, least) = (forward.min(f), least.min(f + i + w));
        }
        let each = (outline.layers.len() / pipeline.stages() as usize) as f64;
        let ends: f64 = (outline.layers.end..outline.runs.len()).map(|run| seconds(run).iter().sum::<f64>()).sum();
        let (before, stages, ends) = match pipeline.placement {
            Placement::Chain => (pipeline.ranks - 1, 1, ends),
            Placement::Loop => (pipeline.ranks - 1, pipeline.chunks, ends),
            Placement::V => (pipeline.ranks - 1, pipeline.chunks, 0.0),
            Placement::Bidirectional => ((pipeline.ranks - 1) / 2, 1, 0.0),
        };
        let fill = f64::from(before) * each * forward / f64::from(pipeline.slices);
        let work = least * each * f64::from(stages) + ends;
        let end = fill + f64::from(self.microbatches) * work;
        let seconds = end * self.machine.stragglers(self.layout.devices());
        Floor { seconds: known.seconds.max(seconds), ..known }
    }

    /// What is `known`, or the least time of a chain however it is cut. A rank works w a micro-batch, m times, after the first
    /// has gone forward through all ranks before it; whole backwards of the last follow through these. If all ranks end by T,
    /// w of each is at most (T - x P) / m, where P is the work of those before it and x the share of it that is not beside
    /// its own: their sum is at most (1 - (1 - x/m)^p) T / x.
    fn chained(&self, kind: &ScheduleKind, pipeline: &Pipeline, known: Floor) -> Floor {
        let outline = &self.fast.outline;
        let (mut work, mut share) = (0.0, 1.0_f64);
        for &run in &outline.runs {
            let profile = &self.fast.profiles[run];
            let [f, i, w] = [profile.f, profile.i, profile.w].map(|part| part.total());
            work += f + i + w;
            share = share.min(f / (f + i + w));
        }
        let share = if kind.has_whole_backwards() { 1.0 } else { share } / f64::from(pipeline.slices);
        let filled = 1.0 - (1.0 - share / f64::from(self.microbatches)).powi(pipeline.ranks as i32);
        let seconds = work * share / filled * self.machine.stragglers(self.layout.devices());
        if seconds.is_finite() { Floor { seconds: known.seconds.max(seconds), ..known } } else { known }
    }

    /// Of the stages that begin so, in a schedule: its step and memory where each rank ends as early as any order lets it.
    pub(super) fn staged(
        &self,
        starts: &[usize],
        kind: &ScheduleKind,
        pipeline: &Pipeline,
        hops: impl Fn(&mut [Load]) -> Vec<f64>,
    ) -> Floor {
        let (layout, machine) = (self.layout, self.machine);
        let replicas = Replicas::new(layout, self.microbatches, machine);
        let mut fast = loads(self.fast, layout, starts, &replicas);
        let hops = hops(&mut fast);
        let flow = least(&fast, &hops, kind, pipeline);
        let seconds = step(&flow, &fast, layout, &replicas, machine, 0.0).seconds;
        let bytes = |flow: &Flow, loads: &[Load]| {
            let stages = memory(flow, loads, layout, &replicas, machine);
            stages.iter().map(|stage| stage.device).fold(0.0, f64::max) * super::memory::GIB
        };
        if self.is_one {
            return Floor { seconds, bytes: bytes(&flow, &fast) };
        }
        let mut small = memory_loads(self.small, starts);
        for (small, fast) in small.iter_mut().zip(&fast) {
            // What is computed again is among the inner values: there are at least as many of them as where nothing is.
            small.transient[0] = small.transient[0].min(fast.transient[0]);
        }
        let flow = least(&small, &hops, kind, pipeline);
        Floor { seconds, bytes: bytes(&flow, &small) }
    }
}

/// The work of a sequence and the parameters of a model, which no layout changes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Work {
    /// FLOPs of a sequence's products, forward and backward.
    products: f64,
    /// Of its attention.
    attention: f64,
    /// Parameters that are no experts', and the experts'.
    elements: [f64; 2],
}

impl Work {
    /// Of a model planned for one device.
    pub(super) fn of(blocks: &Blocks, sequences: u64) -> Work {
        let sum = |of: fn(&cost::Profile) -> f64| {
            blocks.outline.runs.iter().map(|&run| of(&blocks.profiles[run])).sum::<f64>()
        };
        let (causal, whole) = (sum(|it| it.flops), sum(|it| it.flops_noncausal));
        let shared: f64 = blocks.outline.tied.iter().map(|tied| tied.elements * (tied.runs.len() - 1) as f64).sum();
        let attention = whole - causal;
        Work {
            products: 3.0 * (causal - attention) / sequences as f64,
            attention: 3.0 * attention / sequences as f64,
            elements: [sum(|it| it.dense) - shared, sum(|it| it.experts)],
        }
    }

    /// Of all layouts with these degrees: all devices at their full rate all the time, and the states of the mean rank. With
    /// one micro-batch every stage of ZeRO is as asked for.
    pub(crate) fn floor(
        &self,
        layout: &Layout,
        zero: u8,
        sequences: u64,
        microbatches: u32,
        machine: &Machine<'_>,
    ) -> Floor {
        let device = &machine.cluster.device;
        let Recipe { products, .. } = *machine.recipe;
        let rate = device.sustained(products).max(device.sustained(Format::Half)).max(device.sustained(Format::F32));
        let peak = device.flops_bf16.max(device.flops_f32);
        let seconds = self.products / (rate * machine.stack.fitted.matmul.value) + self.attention / peak;
        let fixed = machine.stack.fitted.step_ms.value * 1e-3;
        let path = seconds * sequences as f64 / layout.devices() as f64 + fixed;
        let layout = Layout { zero, ..layout.clone() };
        let replicas = Replicas::new(&layout, microbatches, machine);
        let dense = self.elements[0] / (layout.tp * layout.pp) as f64;
        let experts = self.elements[1] / (layout.ep * layout.etp * layout.pp) as f64;
        let states = ModelStates::of([dense, experts], replicas.parts(), replicas.zero, machine.recipe).total();
        let facts = &machine.stack.facts;
        Floor { seconds: path * machine.stragglers(layout.devices()), bytes: states * facts.reserve + facts.context }
    }
}

/// Seconds of a rank that runs all blocks so many times, and what each step costs besides.
pub(super) fn work_of(blocks: &Blocks, times: f64, machine: &Machine<'_>) -> f64 {
    let of = |profile: &cost::Profile| profile.f.total() + profile.i.total() + profile.w.total();
    let once: f64 = blocks.outline.runs.iter().map(|&run| of(&blocks.profiles[run])).sum();
    once * times + machine.stack.fitted.step_ms.value * 1e-3
}

/// Whether all stages have as many layers.
pub(super) fn is_even(blocks: &Blocks, layout: &Layout, cut: Cut, stages: u32) -> bool {
    let divides = layers_of(blocks).is_multiple_of(stages.max(1) as usize);
    cut == Cut::Time && layout.stages.is_empty() && layers_of(blocks) > 0 && divides
}

/// Whether stages begin at the same runs however layers are computed again.
pub(super) fn is_cut_known(blocks: &Blocks, layout: &Layout, cut: Cut, stages: u32) -> bool {
    !layout.stages.is_empty() || cut == Cut::Parameters || is_even(blocks, layout, cut, stages)
}
