//! Lower bounds of a search node: the same step and memory model, with a pipeline timeline that no order beats.

use super::blocks::{Blocks, Span};
use super::budget::fits_budget;
use super::candidate::{Candidate, Staged};
use super::critical_path::CriticalPath;
use super::memory::states;
use super::memory_fit::{FitRank, KnownPath, MemoryChoices, MemoryFit, ROUNDING, RecomputeOptions, sum};
use super::ordered_stages::OrderedStages;
use super::pipeline::{ActivationLifetime, PipelineTimeline, RankBound, ScheduledPipeline, least, least_of_ranks};
use super::quantities::{PerSection, TpReductions};
use super::rank_waits::{self, OpenOrders, RankWaits};
use super::replicas::Replicas;
use super::stages::{StageCost, StageKinds, loads, memory_loads, run_loads, seconds};
use super::step::LeastAfter;
use cost::{Elements, Passes, Platform};
use ir::options::ParallelConfig;
use smallvec::SmallVec;

/// Seconds of a step and bytes of the peak-memory device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepCost {
    /// Seconds.
    pub seconds: f64,
    /// Bytes.
    pub bytes: f64,
}

/// A model's blocks under a configuration in which every open option takes its fastest value.
pub(super) struct Relaxation<'a> {
    pub(super) parallel: &'a ParallelConfig,
    pub(super) platform: &'a Platform<'a>,
    pub(super) microbatches: u32,
    pub(super) fast: &'a Blocks,
    /// Memory budget of a device in bytes.
    pub(super) budget: f64,
}

/// Stages in an order that no other order beats.
pub(super) struct Stages<'a> {
    /// Seconds of the step.
    pub(super) seconds: f64,
    /// Bytes of each rank's device.
    pub(super) device: Vec<f64>,
    pub(super) loads: Vec<StageCost>,
    hops: Vec<f64>,
    pub(super) flow: PipelineTimeline,
    replicas: Replicas<'a>,
}

/// Stages that save everything, prepared for bounds with recomputation.
pub(super) struct RecomputeBound {
    /// Lower bounds of each rank over all orders.
    ranks: Vec<RankBound>,
    kinds: StageKinds,
    /// Lower bounds on the time after the last backwards.
    after: LeastAfter,
    /// Fixed seconds of a step.
    fixed: f64,
    /// Slowdown factor of the slowest device.
    stragglers: f64,
}

impl RecomputeBound {
    /// Lower bound on the seconds of a step, if the backward of an instance of block `b` takes `more(b)` extra seconds.
    pub(super) fn seconds(&self, more: impl Fn(usize) -> f64) -> f64 {
        let stages = self.kinds.each(|runs| sum(runs, |run| more(run.block)));
        let LeastAfter { reduce, update } = &self.after;
        let summed =
            |(least, own): (&RankBound, &f64)| least.summed(*own, reduce[0]) + least.longer(|at| *stages.at(at));
        let summed = self.ranks.iter().zip(reduce).map(summed).fold(0.0, f64::max);
        (summed + update + self.fixed) * self.stragglers * (1.0 - ROUNDING)
    }
}

impl Stages<'_> {
    /// Bytes of the peak-memory device.
    pub(super) fn bytes(&self) -> f64 {
        self.device.iter().copied().fold(0.0, f64::max)
    }
}

impl<'a> Relaxation<'a> {
    /// The blocks of a candidate.
    pub(super) fn of(candidate: &'a Candidate<'_>, fast: &'a Blocks) -> Relaxation<'a> {
        let Candidate { parallel, platform, microbatches, budget, .. } = candidate;
        Relaxation { parallel, platform, microbatches: *microbatches, fast, budget: *budget }
    }

    /// Lower bound over all pipelines, from the average rank, which has these elements, or from the rank with most layers.
    ///
    /// - Some rank works at least as long as the average, and some rank's update has at least the average number of elements.
    /// - A partition into stages never hides more of ZeRO's gathers and scatters.
    /// - Ranks communicate on average no less than all of them as one rank, each with its share.
    /// - Ranks wait on average no less than for the fewest instances before their first stage ([`rank_waits`]).
    ///
    /// Other idle time is not counted, except that a micro-batch goes through all ranks. Saved
    /// activations are not counted. If the rest exceeds `budget`, or `budget` is `None`, no bound on seconds is given.
    pub(super) fn average_rank(&self, elements: Elements, orders: OpenOrders, budget: Option<f64>) -> StepCost {
        let (parallel, pp) = (self.parallel, self.parallel.pp as f64);
        let replicas = Replicas::new(parallel, self.microbatches, self.platform);
        let bytes = self.average_bytes(elements, None, &replicas);
        if !fits_budget(bytes, budget) {
            return StepCost { seconds: 0.0, bytes };
        }
        let load = run_loads(self.fast, parallel, &replicas);
        let microbatches = f64::from(self.microbatches);
        let whole = load.seconds();
        let each = whole / pp;
        let work = microbatches * each.total();
        let local = (elements.trained / replicas.state_parts()).total();
        let compute = Passes { forward: each.f, backward: each.i + each.w };
        let exchange = replicas.least_exchange(elements, compute);
        let waits = self.rank_waits(orders);
        let Passes { forward, backward } = rank_waits::average(&waits);
        // Gradients of the first rank are reduced after all backwards.
        let average = forward + work + exchange.reduce.max(backward);
        let summed = average.max(self.fullest(&waits, orders)).max(self.through(whole, orders.slices));
        let path = summed + super::step::optimizer(local, self.platform) + exchange.gather + self.platform.fixed();
        StepCost { seconds: path * self.platform.stragglers(parallel.devices()), bytes }
    }

    /// The bound of [`Relaxation::average_rank`] without what depends on how states are sharded.
    pub(super) fn work_alone(&self, orders: OpenOrders) -> f64 {
        let spans = self.fast.outline.spans.iter();
        let whole: PerSection = spans.map(|span| self.seconds(span) * span.runs.len() as f64).sum();
        let waits = self.rank_waits(orders);
        let work = f64::from(self.microbatches) * whole.total() / self.parallel.pp as f64;
        let average = rank_waits::average(&waits).total() + work;
        let path = average.max(self.fullest(&waits, orders)).max(self.through(whole, orders.slices));
        (path + self.platform.fixed()) * self.platform.stragglers(self.parallel.devices())
    }

    /// Elements of the average rank.
    pub(super) fn average_elements(&self) -> Elements {
        memory_loads(self.fast, &[0])[0].elements / self.parallel.pp as f64
    }

    /// Bytes of the average rank, which has `elements` elements and saves the activations of the `small` blocks.
    pub(super) fn average_bytes(&self, elements: Elements, small: Option<&Blocks>, replicas: &Replicas<'_>) -> f64 {
        let states = states(elements, replicas);
        let traits = &self.platform.stack.traits;
        let saved = small.map_or(0.0, saved_by_recomputing_all) / self.parallel.pp as f64;
        // Some rank has the block with the largest inner values.
        let inner = self.fast.profiles.iter().map(|profile| profile.transient).fold(0.0, f64::max);
        // A step's only backward may reuse the memory of the saved activations for gradients.
        let held = replicas.held(elements.all);
        let reused = (saved + held).min(states.gradients);
        let replaced = if traits.zero.frees_gradients && self.microbatches < 2 { reused } else { 0.0 };
        (states.total() + held + saved - replaced).max(inner) * traits.memory.reserve + traits.memory.context
    }

    /// Seconds until a micro-batch is through, whose forward, input and weight gradients take the times in `whole`. An
    /// unsliced micro-batch goes forward and back.
    ///
    /// With q slices, a chain of p ranks goes through whole backwards. Each rank's m micro-batches wait for the first slice
    /// to come through the ranks before it, and the last one goes back through them. With shares of the work that let all
    /// ranks end at once, the step takes S/(q (1 - (1 - 1/(q m))^p)), where S is the seconds of a micro-batch.
    fn through(&self, whole: PerSection, slices: u32) -> f64 {
        let once = whole.f + whole.i;
        if slices < 2 {
            return once;
        }
        let (slices, microbatches) = (f64::from(slices), f64::from(self.microbatches));
        let rest = (1.0 - 1.0 / (slices * microbatches)).powf(self.parallel.pp as f64);
        once.min((once + whole.w) / (slices * (1.0 - rest)))
    }

    /// Seconds of the rank with most layers, since layers are indivisible, if ranks wait for `waits`. If two chains share ranks, a pair of
    /// ranks has layers together: of n layers on p ranks, some pair has 2n/p, rounded up.
    fn fullest(&self, waits: &RankWaits, orders: OpenOrders) -> f64 {
        let layers = self.fast.outline.layers.len();
        let spans = self.fast.outline.spans.iter().filter(|span| span.are_layers);
        let least = spans.map(|span| self.seconds(span).total()).fold(f64::INFINITY, f64::min);
        let least = if layers > 0 { f64::from(self.microbatches) * least } else { 0.0 };
        if orders.has_two_chains {
            return (2 * layers as u64).div_ceil(self.parallel.pp) as f64 / 2.0 * least;
        }
        let waits: SmallVec<[f64; 32]> = waits.iter().map(|wait| wait.total()).collect();
        rank_waits::with_layers(&waits, layers, least)
    }

    /// Seconds of a forward, an input gradient and a weight gradient of one of these block instances.
    fn seconds(&self, span: &Span) -> PerSection {
        let profile = &self.fast.profiles[span.block];
        PerSection { f: profile.f.total(), i: profile.i.total(), w: profile.w.total() }
    }

    /// Seconds of a step whose ranks have these bounds, without messages, gathers and the work after the last backward.
    pub(super) fn rough(&self, bounds: &[RankBound]) -> f64 {
        bounds.iter().map(RankBound::end).fold(0.0, f64::max) * self.platform.stragglers(self.parallel.devices())
    }

    /// Stages that save everything, prepared for bounds with values to recompute.
    pub(super) fn longer(&self, staged: &Staged, schedule: &ScheduledPipeline) -> RecomputeBound {
        let (starts, replicas) = (staged.starts(), Replicas::new(self.parallel, self.microbatches, self.platform));
        RecomputeBound {
            ranks: self.least_of_ranks(&starts, schedule),
            kinds: StageKinds::of(self.fast, &starts),
            after: self.ordered(&staged.flow, &staged.loads, &replicas).least_after(),
            fixed: self.platform.fixed(),
            stragglers: self.platform.stragglers(self.parallel.devices()),
        }
    }

    /// Lower bounds over all orders of each rank of the stages that begin at `starts`, without messages and gathers.
    pub(super) fn least_of_ranks(&self, starts: &[usize], schedule: &ScheduledPipeline) -> Vec<RankBound> {
        let seconds = seconds(self.fast, self.parallel, starts);
        least_of_ranks(&seconds, &vec![0.0; seconds.len()], schedule)
    }

    /// The stages that begin at `starts`, in a schedule. Each rank ends as early as any order allows, and holds as little as
    /// in any order that ends within `within` seconds. If no order does, `device` is empty.
    pub(super) fn staged(
        &self,
        starts: &[usize],
        schedule: &ScheduledPipeline,
        hops: impl Fn(&mut [StageCost]) -> Vec<f64>,
        within: f64,
    ) -> Stages<'a> {
        let replicas = Replicas::new(self.parallel, self.microbatches, self.platform);
        let mut staged = self.laid_out(replicas, starts, schedule, hops, within);
        let ordered = self.ordered(&staged.flow, &staged.loads, &staged.replicas);
        let seconds = ordered.step(0.0).seconds;
        let device = if seconds > within { Vec::new() } else { ordered.devices() };
        (staged.seconds, staged.device) = (seconds, device);
        staged
    }

    /// The stages of [`Relaxation::staged`], before their seconds and their memory are known.
    pub(super) fn laid_out(
        &self,
        replicas: Replicas<'a>,
        starts: &[usize],
        schedule: &ScheduledPipeline,
        hops: impl Fn(&mut [StageCost]) -> Vec<f64>,
        within: f64,
    ) -> Stages<'a> {
        let mut loads = loads(self.fast, self.parallel, starts, &replicas);
        let hops = hops(&mut loads);
        let flow = flow_of(&loads, &hops, schedule, within);
        Stages { seconds: 0.0, device: Vec::new(), loads, hops, flow, replicas }
    }

    /// Raises the seconds of these stages to the critical path of a simulated configuration, if the stages run in that
    /// configuration's order.
    pub(super) fn along(&self, staged: &mut Stages<'_>, path: &CriticalPath) {
        let seconds: Vec<PerSection> = staged.loads.iter().map(StageCost::seconds).collect();
        let end = path.seconds(&seconds, &staged.hops);
        let rank = &mut staged.flow.ranks[path.rank];
        if end > rank.end {
            rank.wait_until(end);
            staged.seconds = self.ordered(&staged.flow, &staged.loads, &staged.replicas).step(0.0).seconds;
        }
    }

    /// Stages of the configuration in their order.
    fn ordered<'o>(
        &'o self,
        flow: &'o PipelineTimeline,
        loads: &'o [StageCost],
        replicas: &'o Replicas<'o>,
    ) -> OrderedStages<'o> {
        OrderedStages {
            parallel: self.parallel,
            replicas,
            loads,
            tied: &self.fast.outline.tied,
            flow,
            budget: self.budget,
        }
    }

    /// Lower bound on the seconds of a step in which, by some memory option, every device fits in its budget and which ends
    /// in time. If the order does not depend on costs, the bound includes the critical path `path` of the order that saves
    /// everything.
    pub(super) fn fitted(
        &self,
        mut staged: Stages<'_>,
        starts: &[usize],
        schedule: &ScheduledPipeline,
        path: Option<&CriticalPath>,
        query: &FitQuery<'_>,
    ) -> f64 {
        let after = self.ordered(&staged.flow, &staged.loads, &staged.replicas).least_after();
        // The lead of the CPU over the device is not known either.
        staged.loads.iter_mut().for_each(|load| load.reductions = TpReductions::default());
        staged.device = self.ordered(&staged.flow, &staged.loads, &staged.replicas).devices();
        self.fitted_ranks(&staged, &self.least_of_ranks(starts, schedule), schedule, path, after, query)
    }

    /// The bound of [`Relaxation::fitted`] over the first ranks, as many as the stages state devices of. They have these bounds, and this
    /// work after their last backwards.
    pub(super) fn fitted_ranks(
        &self,
        staged: &Stages<'_>,
        bounds: &[RankBound],
        schedule: &ScheduledPipeline,
        path: Option<&CriticalPath>,
        after: LeastAfter,
        query: &FitQuery<'_>,
    ) -> f64 {
        // Compute that hides gathers and scatters takes longer with recomputation.
        let alone: Vec<PerSection> = staged.loads.iter().map(|load| load.with_shards(Passes::default())).collect();
        let path = path.map(|path| KnownPath { path, seconds: path.seconds(&alone, &staged.hops) });
        let lifetime = ActivationLifetime::of(&alone, &vec![0.0; alone.len()], schedule, query.within);
        let LeastAfter { reduce, update } = after;
        let starts: SmallVec<[usize; 32]> = staged.loads.iter().map(|load| load.runs.start).collect();
        let kinds = StageKinds::of(self.fast, &starts);
        let saved: SmallVec<[f64; 8]> = self.fast.profiles.iter().map(|profile| profile.saved).collect();
        let reserve = self.platform.stack.traits.memory.reserve;
        let ranks = (bounds.iter().zip(reduce))
            .zip(staged.device.iter().zip(&staged.flow.ranks))
            .zip(0..)
            .map(|(((bound, reduce_s), (&device_bytes, rank)), number)| FitRank {
                number,
                bound,
                reduce_s,
                device_bytes,
                saved_bytes: rank.saved,
            })
            .collect();
        let fit = MemoryFit { schedule, kinds: &kinds, saved: &saved, ranks, path, lifetime, reserve };
        (fit.seconds(query.options, query.choices, query.budget) + update + self.platform.fixed())
            * self.platform.stragglers(self.parallel.devices())
    }
}

/// Arguments of a lower bound with memory options.
pub(super) struct FitQuery<'a> {
    /// Options of the blocks.
    pub(super) options: &'a RecomputeOptions,
    /// Options of the search node.
    pub(super) choices: &'a MemoryChoices,
    /// Memory budget of a device, in bytes.
    pub(super) budget: f64,
    /// Upper limit on the seconds of the step.
    pub(super) within: f64,
}

/// Stages in an order that no other order beats.
pub(super) fn flow_of(
    loads: &[StageCost],
    hops: &[f64],
    schedule: &ScheduledPipeline,
    within: f64,
) -> PipelineTimeline {
    let saved: Vec<f64> = loads.iter().map(|load| load.saved).collect();
    least(&loads.iter().map(StageCost::seconds).collect::<Vec<_>>(), &saved, hops, schedule, within)
}

/// Bytes that all block instances save if all layers that can be are recomputed.
fn saved_by_recomputing_all(blocks: &Blocks) -> f64 {
    let profiles = blocks.recomputed.as_ref().unwrap_or(&blocks.profiles);
    blocks.outline.spans.iter().map(|span| span.runs.len() as f64 * profiles[span.block].saved).sum()
}

/// Seconds of a rank that executes all blocks `times` times, plus the fixed cost of each step.
pub(super) fn work_of(blocks: &Blocks, times: f64, platform: &Platform<'_>) -> f64 {
    let seconds = |profile: &cost::Profile| profile.f.total() + profile.i.total() + profile.w.total();
    blocks.sum(seconds) * times + platform.fixed()
}
