//! Simulation of the stages in the order of the configuration's schedule.

use super::action_order::OrderCache;
use super::critical_path::CriticalPath;
use super::error::Error;
use super::quantities::{OpenMicrobatches, PerSection, RankStages, StageRuns};
use super::stages::StageCost;
use compiler::compile_error::CompileError;
use cost::Passes;
use ir::limits;
use ir::options::ParallelConfig;
use scheduler::costs::{CostsFile, PerStage, StageCosts};
use scheduler::placement::{Pipeline, Placement};
use scheduler::predict::pipeline_of;
use scheduler::schedules::ScheduleKind;
use scheduler::simulate::Idle;
use smallvec::SmallVec;

/// A pipeline, and the kind of schedule that orders its micro-batches.
#[derive(Clone, Copy)]
pub(super) struct ScheduledPipeline {
    pub(super) kind: &'static ScheduleKind,
    pub(super) pipeline: Pipeline,
}

impl ScheduledPipeline {
    /// The pipeline of a configuration.
    ///
    /// # Errors
    /// The schedule does not support the configuration's pipeline.
    pub(super) fn of(parallel: &ParallelConfig, microbatches: u32) -> Result<ScheduledPipeline, Error> {
        let (kind, pipeline) = pipeline_of(parallel, microbatches).map_err(CompileError::from)?;
        Ok(ScheduledPipeline { kind, pipeline })
    }

    /// The same with another number of micro-batches.
    fn with(&self, microbatches: u32) -> ScheduledPipeline {
        ScheduledPipeline { kind: self.kind, pipeline: Pipeline { microbatches, ..self.pipeline } }
    }

    /// Number of F of a step, slices counted.
    fn actions(&self) -> u64 {
        let Pipeline { microbatches, slices, .. } = self.pipeline;
        u64::from(self.pipeline.stages()) * u64::from(microbatches) * u64::from(slices)
    }

    /// The numbers of micro-batches from which a step is extrapolated; `None` if all micro-batches are simulated.
    fn extrapolation(&self) -> Option<Extrapolation> {
        let ScheduledPipeline { kind, ref pipeline } = *self;
        let microbatches = pipeline.microbatches;
        let (simulated, rounds) = if kind.repeats_rounds() { (SIMULATED, 1) } else { (SIMULATED * LONG, LONG as u32) };
        // Two chains share the micro-batches.
        let round = pipeline.ranks * rounds * if pipeline.placement == Placement::Bidirectional { 2 } else { 1 };
        let filled = 3 * round + microbatches % round;
        (self.actions() > simulated && pipeline.group.is_none() && microbatches > filled + round)
            .then_some(Extrapolation { filled, round })
    }

    /// The stages of a rank, with how often it runs their sections. Two chains share the micro-batches.
    fn stages_of(&self, rank: u32) -> RankStages {
        let pipeline = &self.pipeline;
        let microbatches = f64::from(pipeline.microbatches);
        let runs = |stage: u32, microbatches: f64| StageRuns {
            stage: stage as usize,
            runs: PerSection::uniform(microbatches),
        };
        if pipeline.placement != Placement::Bidirectional {
            return pipeline.stages_of(rank, 0).map(|stage| runs(stage, microbatches)).collect();
        }
        let down = f64::from(pipeline.microbatches.div_ceil(2));
        let pair = [runs(rank, down), runs(pipeline.ranks - 1 - rank, microbatches - down)];
        let mut stages = RankStages::new();
        for own in pair.into_iter().filter(|own| own.runs.f > 0.0) {
            match stages.iter_mut().find(|other| other.stage == own.stage) {
                Some(both) => both.runs = both.runs + own.runs,
                None => stages.push(own),
            }
        }
        stages.sort_by_key(|own| own.stage);
        stages
    }
}

/// Numbers of micro-batches of a pipeline whose step is extrapolated.
#[derive(Clone, Copy)]
struct Extrapolation {
    /// Micro-batches that fill the pipeline.
    filled: u32,
    /// Micro-batches of a round.
    round: u32,
}

/// Timeline of a pipeline's step up to the last backward.
#[derive(Debug)]
pub(super) struct PipelineTimeline {
    pub(super) ranks: Vec<Rank>,
    /// Idle fraction, averaged over ranks.
    pub(super) bubble: f64,
    /// Critical path, if it is known.
    pub(super) path: Option<CriticalPath>,
}

/// Timeline of a rank.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Rank {
    pub(super) stages: RankStages,
    /// End of the last action, in seconds.
    pub(super) end: f64,
    /// Idle seconds by cause.
    pub(super) idle: Idle,
    /// Seconds of its messages, half of each.
    pub(super) messages: f64,
    /// Peak bytes of saved activations on the device.
    pub(super) saved: f64,
    /// Peak bytes of saved activations while a forward or input gradient of the last stage runs; 0 on ranks without it.
    pub(super) saved_at_end: f64,
    /// Peak bytes of saved activations in host memory.
    pub(super) offloaded: f64,
    /// Peak number of micro-batches in flight of its last stage.
    pub(super) in_flight: f64,
    /// Micro-batches of its first stage when the others have run their last backward, and when most of them wait for W after that.
    pub(super) left: SmallVec<[OpenMicrobatches; 2]>,
    /// True if some backward has I and W together.
    pub(super) fuses: bool,
}

/// Number of actions up to which all micro-batches are simulated.
const SIMULATED: u64 = 4096;

/// Number of actions up to which more micro-batches are simulated if rounds differ.
const UNSETTLED: u64 = 1 << 16;

/// Relative difference up to which seconds count as equal.
const SAME: f64 = 1e-6;

/// Factor on the simulated actions, and on the micro-batches of a round, for schedules that repeat no short round.
const LONG: u64 = 8;

/// Orders and simulates the micro-batches of a step; `hops[s]` are the seconds between stages s and s + 1.
///
/// If there are many micro-batches, only those that fill the pipeline a few times are simulated. Each further round adds the
/// same to every figure. With uneven stages, a slow stage may delay the others only after many rounds.
///
/// # Errors
/// The schedule does not support the pipeline.
pub(super) fn flow(
    loads: &[StageCost],
    hops: &[f64],
    schedule: &ScheduledPipeline,
    orders: &OrderCache,
) -> Result<PipelineTimeline, Error> {
    let [on_device, on_host] =
        [|load: &StageCost| load.saved > 0.0, |load: &StageCost| load.offloaded > 0.0].map(|has| loads.iter().any(has));
    let flow = |loads: &[StageCost]| simulated(loads, hops, schedule, orders);
    match (on_device || schedule.kind.splits_backward, on_host) {
        (_, false) => flow(loads),
        (false, true) => Ok(flow(loads)?.offloaded()),
        (true, true) => {
            let part = |of: fn(StageCost) -> StageCost| flow(&loads.iter().cloned().map(of).collect::<Vec<_>>());
            // I has brought back all of it, and what W reads stays on the device.
            let mut on_device = part(|load| StageCost { offloaded: 0.0, ..load })?;
            let on_host = part(|load| StageCost { saved: 0.0, saved_for_w: 0.0, ..load })?.offloaded();
            for (rank, away) in on_device.ranks.iter_mut().zip(on_host.ranks) {
                rank.offloaded = away.offloaded;
            }
            Ok(on_device)
        }
    }
}

/// The same, with all saved activations on the device.
fn simulated(
    loads: &[StageCost],
    hops: &[f64],
    schedule: &ScheduledPipeline,
    orders: &OrderCache,
) -> Result<PipelineTimeline, Error> {
    let microbatches = schedule.pipeline.microbatches;
    let simulate = |microbatches| ranks(loads, hops, &schedule.with(microbatches), orders);
    let whole = || {
        simulate(microbatches).map(|(ranks, path)| PipelineTimeline { path: Some(path), ..PipelineTimeline::of(ranks) })
    };
    let Some(Extrapolation { mut filled, round }) = schedule.extrapolation() else { return whole() };
    loop {
        let ((few, path), (more, longer)) = (simulate(filled)?, simulate(filled + round)?);
        let next = 4 * filled - 3 * (filled % round); // four times the number of rounds
        let is_beyond = next + round >= microbatches;
        if schedule.kind.repeats_rounds() && !is_settled(&few, &more) {
            if is_beyond && schedule.actions() <= UNSETTLED {
                return whole();
            }
            if !is_beyond && schedule.with(next).actions() <= UNSETTLED {
                filled = next;
                continue;
            }
        }
        let rounds = f64::from((microbatches - filled) / round);
        let mut ranks: Vec<Rank> = few.iter().zip(&more).map(|(few, more)| few.further(more, rounds)).collect();
        // Rounds that differ may add up to less than the work of a rank.
        let seconds: Vec<PerSection> = loads.iter().map(StageCost::seconds).collect();
        raise(&mut ranks, &least_of_ranks(&seconds, hops, schedule));
        return Ok(PipelineTimeline { path: path.further(&longer, rounds), ..PipelineTimeline::of(ranks) });
    }
}

/// Returns `true` if a further round takes the same seconds on all ranks. Rounds do so once the slowest rank delays all
/// others; until then some rank idles less, or holds less, with each round.
fn is_settled(few: &[Rank], more: &[Rank]) -> bool {
    let both = || few.iter().zip(more);
    let longer = || both().map(|(few, more)| more.end - few.end);
    let (least, most) = (longer().fold(f64::INFINITY, f64::min), longer().fold(0.0, f64::max));
    let waits = |rank: &Rank| rank.end - rank.busy();
    let is_no_less = |(few, more): (&Rank, &Rank)| {
        waits(more) - waits(few) >= -SAME * most && more.saved >= (1.0 - SAME) * few.saved
    };
    most - least <= SAME * most && both().all(is_no_less)
}

/// Lower bound on the time activations stay saved, and with it on the average bytes that a rank holds. A stage's average is its
/// bytes, times the number of forwards, times the seconds each stays, over the seconds of the step (Little 1961). The peak is
/// at least the average.
pub(super) struct ActivationLifetime {
    /// Seconds between the end of each stage's forward and the start of its backward.
    seconds: Vec<f64>,
    /// Upper limit on the seconds of the step.
    within: f64,
}

impl ActivationLifetime {
    /// Lifetimes for stages with these seconds, in steps of at most `within` seconds. They are 0 with slices, and for
    /// pipelines that are extrapolated.
    pub(super) fn of(
        seconds: &[PerSection],
        hops: &[f64],
        schedule: &ScheduledPipeline,
        within: f64,
    ) -> ActivationLifetime {
        let ScheduledPipeline { kind, ref pipeline } = *schedule;
        let mut returns = vec![0.0; seconds.len()];
        if pipeline.slices == 1 && schedule.extrapolation().is_none() {
            for stage in (1..seconds.len()).rev() {
                let PerSection { f, i, w } = seconds[stage];
                let hop = if pipeline.ranks > 1 { hops[stage - 1] } else { 0.0 };
                returns[stage - 1] = returns[stage] + f + i + if !kind.splits_backward { w } else { 0.0 } + 2.0 * hop;
            }
        }
        ActivationLifetime { seconds: returns, within }
    }

    /// Average bytes that a rank with these stages holds, if the trip to the last stage and back takes `more` extra seconds.
    fn saved(&self, stages: &[StageRuns], saved: &impl Fn(usize) -> f64, more: f64) -> f64 {
        let of_stage =
            |StageRuns { stage, runs }: &StageRuns| runs.f * saved(*stage) * (self.seconds[*stage] + more).max(0.0);
        stages.iter().map(of_stage).sum::<f64>() / self.within
    }
}

/// Lower bound on a rank's timeline over all orders of a schedule kind.
pub(super) struct RankBound {
    pub(super) stages: RankStages,
    /// Earliest arrival of the first micro-batch at its first stage, in seconds.
    before: f64,
    /// Seconds of its work.
    work: f64,
    /// Earliest end of the chain of actions that follows its last backward, in seconds.
    chain: f64,
}

impl RankBound {
    /// Earliest end of a step, in seconds.
    pub(super) fn end(&self) -> f64 {
        self.summed(0.0, 0.0)
    }

    /// Earliest end of all gradient reductions, in seconds. Reductions take `own` seconds on this rank, and `first` seconds on
    /// the first rank, where all chains end.
    pub(super) fn summed(&self, own: f64, first: f64) -> f64 {
        (self.chain + first).max(self.before + self.work + own)
    }

    /// Extra seconds of its backwards, if the backward of stage `s` takes `more(s)` extra seconds for a micro-batch.
    pub(super) fn longer(&self, more: impl Fn(usize) -> f64) -> f64 {
        self.stages.iter().map(|it| it.runs.i * more(it.stage)).sum()
    }
}

/// Lower bound of each rank of a pipeline whose stages take these seconds. A rank begins when the first micro-batch can have
/// reached its first stage, and then works without a pause. Its last input gradient is followed by those of all stages before
/// it, or by the whole backwards if the schedule does not split them.
pub(super) fn least_of_ranks(seconds: &[PerSection], hops: &[f64], schedule: &ScheduledPipeline) -> Vec<RankBound> {
    let ScheduledPipeline { kind, ref pipeline } = *schedule;
    let slices = f64::from(pipeline.slices);
    let is_whole = !kind.splits_backward;
    // Seconds of a slice's trip through all stages before each stage.
    let mut trips = vec![Passes::default(); seconds.len()];
    for stage in 1..seconds.len() {
        let Passes { forward, backward } = trips[stage - 1];
        let PerSection { f, i, w } = seconds[stage - 1] / slices;
        let hop = if pipeline.ranks > 1 { hops[stage - 1] / slices } else { 0.0 };
        trips[stage] =
            Passes { forward: forward + f + hop, backward: backward + i + hop + if is_whole { w } else { 0.0 } };
    }
    let bound = |rank: u32| {
        let stages = schedule.stages_of(rank);
        let own: PerSection = stages.iter().map(|it| seconds[it.stage] * it.runs).sum();
        let work = own.total();
        let first = stages.iter().map(|it| it.stage).min().unwrap_or(0);
        let Passes { forward: before, backward: after } = trips[first];
        // The first stage's own weight gradient follows its last input gradient.
        let (chained, behind) =
            if is_whole || first == 0 { (work, 0.0) } else { (work - own.w, seconds[0].w / slices) };
        RankBound { stages, before, work, chain: before + chained + after + behind }
    };
    (0..pipeline.ranks).map(bound).collect()
}

impl RankBound {
    /// Lower bound on the peak bytes of saved activations of rank number `rank`: from the number of micro-batches that the
    /// schedule kind has in flight, and from the lifetimes of activations. A forward of stage `s` saves `saved(s)` bytes; `more` is as in
    /// [`ActivationLifetime::saved`].
    pub(super) fn least_saved(
        &self,
        rank: u32,
        saved: &impl Fn(usize) -> f64,
        schedule: &ScheduledPipeline,
        lifetime: &ActivationLifetime,
        more: f64,
    ) -> f64 {
        let ScheduledPipeline { kind, ref pipeline } = *schedule;
        let each = || self.stages.iter().map(|it| saved(it.stage) / f64::from(pipeline.slices));
        let all = f64::from(kind.min_in_flight(rank, pipeline)) * each().fold(f64::INFINITY, f64::min);
        each().fold(all, f64::max).max(lifetime.saved(&self.stages, saved, more))
    }
}

/// Timeline that no order of the schedule kind beats, for stages that take these seconds and save `saved` bytes per forward, in
/// steps of at most `within` seconds. The rank with the first stage ends no earlier than the longest chain.
pub(super) fn least(
    seconds: &[PerSection],
    saved: &[f64],
    hops: &[f64],
    schedule: &ScheduledPipeline,
    within: f64,
) -> PipelineTimeline {
    let bounds = least_of_ranks(seconds, hops, schedule);
    let lifetime = ActivationLifetime::of(seconds, hops, schedule, within);
    let timeline = |(rank, bound): (u32, &RankBound)| {
        let saved_at_end =
            bound.stages.last().map_or(0.0, |own| saved[own.stage] / f64::from(schedule.pipeline.slices));
        let saved = bound.least_saved(rank, &|stage| saved[stage], schedule, &lifetime, 0.0);
        let idle = Idle { dependency: bound.before, ..Idle::default() };
        let (stages, end) = (bound.stages.clone(), bound.before + bound.work);
        Rank { stages, end, idle, saved, saved_at_end, ..Rank::default() }
    };
    let mut ranks: Vec<Rank> = (0..).zip(&bounds).map(timeline).collect();
    raise(&mut ranks, &bounds);
    PipelineTimeline::of(ranks)
}

/// Raises the end of each rank to the end of its work, and that of the first rank to the end of the longest chain.
fn raise(ranks: &mut [Rank], bounds: &[RankBound]) {
    let last = bounds.iter().map(|bound| bound.chain).fold(0.0, f64::max);
    for (rank, bound) in ranks.iter_mut().zip(bounds) {
        rank.wait_until(bound.before + bound.work);
    }
    if let Some(first) = ranks.first_mut() {
        first.wait_until(last);
    }
}

/// Timelines of all ranks, every micro-batch simulated, and the critical path.
fn ranks(
    loads: &[StageCost],
    hops: &[f64],
    schedule: &ScheduledPipeline,
    orders: &OrderCache,
) -> Result<(Vec<Rank>, CriticalPath), Error> {
    let pipeline = &schedule.pipeline;
    if schedule.actions() > limits::ACTIONS {
        let (runs, microbatches) = (u64::from(pipeline.stages()), pipeline.microbatches);
        return Err(CompileError::TooManyActions { runs, microbatches }.into());
    }
    let slices = f64::from(pipeline.slices);
    let costs = costs(loads, hops, slices);
    Ok(orders.get(schedule.kind, pipeline, &costs)?.run(&costs, hops, slices))
}

/// Seconds and bytes of an action of each stage.
pub(super) fn costs(loads: &[StageCost], hops: &[f64], slices: f64) -> StageCosts {
    let each = |of: &dyn Fn(&StageCost) -> f64| loads.iter().map(|load| of(load) / slices).collect::<Vec<f64>>();
    StageCosts {
        f: each(&|load| load.seconds().f),
        i: each(&|load| load.seconds().i),
        w: each(&|load| load.seconds().w),
        comm: hops.iter().map(|hop| hop / slices).collect(),
        mem_f: each(&StageCost::saved_anywhere),
        // Negative if I leaves more memory for W than it frees, as with recomputed layers.
        mem_i: each(&|load| load.saved_anywhere() - load.saved_for_w),
        mem_w: each(&|load| load.saved_for_w),
        ..StageCosts::uniform(loads.len() as u32, 0.0, 0.0, 0.0, 0.0)
    }
}

/// The same in ms and GiB, as in the file of a schedule's costs.
pub(super) fn drawn_costs(loads: &[StageCost], hops: &[f64], slices: f64) -> CostsFile {
    let costs = costs(loads, hops, slices);
    let each = |figures: Vec<f64>, unit: f64| PerStage::Each(figures.into_iter().map(|figure| figure / unit).collect());
    let gib = |figures: Vec<f64>| Some(each(figures, 1024.0_f64.powi(3)));
    CostsFile {
        unit: "ms".to_string(),
        f: each(costs.f, 1e-3),
        i: each(costs.i, 1e-3),
        w: each(costs.w, 1e-3),
        comm: each(costs.comm, 1e-3),
        mem_f: gib(costs.mem_f),
        // A file has no negative figures: W then frees all.
        mem_i: gib(costs.mem_i.into_iter().map(|bytes| bytes.max(0.0)).collect()),
        ..CostsFile::default()
    }
}

impl PipelineTimeline {
    fn of(ranks: Vec<Rank>) -> PipelineTimeline {
        let last = ranks.iter().map(|rank| rank.end).fold(0.0, f64::max);
        let busy = ranks.iter().map(Rank::busy).sum::<f64>() / ranks.len().max(1) as f64;
        PipelineTimeline { ranks, bubble: if last > 0.0 { 1.0 - busy / last } else { 0.0 }, path: None }
    }

    /// The same with all saved activations in host memory.
    fn offloaded(mut self) -> PipelineTimeline {
        self.ranks.iter_mut().for_each(|rank| rank.offloaded = std::mem::take(&mut rank.saved));
        self
    }
}

impl Rank {
    /// Seconds of its work.
    pub(super) fn busy(&self) -> f64 {
        self.end - self.idle.dependency - self.idle.latency - self.idle.memory
    }

    /// Idles until `end`, if that is later than its own end.
    pub(super) fn wait_until(&mut self, end: f64) {
        self.idle.dependency += (end - self.end).max(0.0);
        self.end = self.end.max(end);
    }

    /// Extrapolates by a number of rounds; `more` is the timeline with one round more.
    fn further(&self, more: &Rank, rounds: f64) -> Rank {
        let at = |few: f64, more: f64| few + (more - few) * rounds;
        let stages = self.stages.iter().zip(&more.stages);
        let stages = stages.map(|(few, more)| StageRuns { stage: few.stage, runs: few.runs.zip(more.runs, at) });
        Rank {
            stages: stages.collect(),
            end: at(self.end, more.end),
            idle: Idle {
                dependency: at(self.idle.dependency, more.idle.dependency),
                latency: at(self.idle.latency, more.idle.latency),
                memory: at(self.idle.memory, more.idle.memory),
                barrier: at(self.idle.barrier, more.idle.barrier),
            },
            messages: at(self.messages, more.messages),
            // A peak never falls with more micro-batches.
            saved: at(self.saved, more.saved).max(self.saved),
            saved_at_end: at(self.saved_at_end, more.saved_at_end).max(self.saved_at_end),
            offloaded: 0.0,
            in_flight: at(self.in_flight, more.in_flight),
            left: self.left.clone(),
            fuses: self.fuses,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cost::Seconds;

    /// Four stages of which the last is slower.
    fn loads() -> Vec<StageCost> {
        let load = |gemm: f64| {
            let seconds = Seconds { gemm, ..Seconds::default() };
            StageCost { f: seconds, i: seconds, w: seconds, saved: 10.0, ..StageCost::default() }
        };
        [1.0, 1.0, 1.1, 1.3].map(load).to_vec()
    }

    #[test]
    fn many_microbatches_are_as_if_all_had_been_simulated() {
        for schedule in ["1f1b", "gpipe", "zb-h1", "interleaved-1f1b", "dualpipe"] {
            let chunks = if schedule.starts_with("interleaved") { 2 } else { 1 };
            let parallel = ParallelConfig { pp: 4 / chunks, schedule: schedule.into(), ..ParallelConfig::default() };
            for microbatches in [1502, 2048] {
                let scheduled = ScheduledPipeline::of(&parallel, microbatches).unwrap();
                let ours = flow(&loads(), &[0.1; 3], &scheduled, &OrderCache::default()).unwrap();
                let all =
                    PipelineTimeline::of(ranks(&loads(), &[0.1; 3], &scheduled, &OrderCache::default()).unwrap().0);
                for (ours, all) in ours.ranks.iter().zip(&all.ranks) {
                    assert!((ours.end / all.end - 1.0).abs() < 1e-9, "{schedule}: {ours:?}, {all:?}");
                    assert!((ours.busy() / all.busy() - 1.0).abs() < 1e-9, "{schedule}: {ours:?}, {all:?}");
                    assert!((ours.saved / all.saved - 1.0).abs() < 1e-9, "{schedule}: {ours:?}, {all:?}");
                    assert_eq!(ours.in_flight, all.in_flight, "{schedule}");
                }
                assert!((ours.bubble - all.bubble).abs() < 1e-9);
            }
        }
    }

    /// The slowest stage holds up the others only after many rounds, which have slack until then.
    #[test]
    fn uneven_stages_are_as_if_all_had_been_simulated() {
        let gemm =
            |stage: usize| 1.0 + [0.0, 0.02, 0.01, 0.05, 0.03][stage * 7 % 5] + if stage == 9 { 0.06 } else { 0.0 };
        let load = |stage: usize| {
            let seconds = Seconds { gemm: gemm(stage), ..Seconds::default() };
            StageCost { f: seconds, i: seconds, w: seconds, saved: 10.0, ..StageCost::default() }
        };
        let wide = ["grouped-interleaved", "interleaved-1f1b", "interleaved-zb"].map(|kind| (kind, 4, Some(4)));
        let folded = ["zb-v", "v-half", "v-min", "1f1b-v", "dualpipe-v"].map(|kind| (kind, 8, None));
        let deep = ["1f1b", "zb-h1", "zb-h2", "dualpipe", "chimera"].map(|kind| (kind, 16, None));
        let kinds = wide.into_iter().chain(folded).chain(deep);
        // GPT-3 175B on 12 ranks: groups of 12 micro-batches, of which the last is smaller.
        let cases = kinds.map(|kind| (kind, 640)).chain([(("interleaved-zb", 12, Some(8)), 64)]);
        for ((schedule, pp, vp), microbatches) in cases {
            let parallel = ParallelConfig { pp, vp, schedule: schedule.into(), ..ParallelConfig::default() };
            let scheduled = ScheduledPipeline::of(&parallel, microbatches).unwrap();
            let loads: Vec<StageCost> = (0..scheduled.pipeline.stages() as usize).map(load).collect();
            let hops = vec![0.01; loads.len() - 1];
            let ours = flow(&loads, &hops, &scheduled, &OrderCache::default()).unwrap();
            let all = PipelineTimeline::of(ranks(&loads, &hops, &scheduled, &OrderCache::default()).unwrap().0);
            for (ours, all) in ours.ranks.iter().zip(&all.ranks) {
                assert!((ours.end / all.end - 1.0).abs() < 1e-5, "{schedule}: {ours:?}, {all:?}");
                assert!((ours.saved / all.saved - 1.0).abs() < 1e-5, "{schedule}: {ours:?}, {all:?}");
                assert!(ours.idle.dependency > -1e-6 * ours.end, "{schedule}: {ours:?}");
            }
        }
    }

    /// Orders that follow no round of micro-batches, and waves of Hanayo, which repeat after many of them.
    #[test]
    fn orders_that_repeat_late_are_as_if_nearly_all_had_been_simulated() {
        let loads: Vec<StageCost> = (0..16).map(|stage| loads()[stage / 4].clone()).collect();
        let deep = ["zb-auto", "zb-h2", "eager-1f1b"].map(|kind| (kind, 16, None));
        let folded = ["zb-v-greedy", "zb-v", "v-half", "v-min", "1f1b-v", "dualpipe-v"].map(|kind| (kind, 8, None));
        let wide = ["hanayo", "interleaved-zb", "looped-bfs"].map(|kind| (kind, 4, Some(4)));
        for (schedule, pp, vp) in deep.into_iter().chain(folded).chain(wide) {
            let parallel = ParallelConfig { pp, vp, schedule: schedule.into(), ..ParallelConfig::default() };
            for hop in [0.1, 1.0] {
                let scheduled = ScheduledPipeline::of(&parallel, 3000).unwrap();
                let ours = flow(&loads, &[hop; 15], &scheduled, &OrderCache::default()).unwrap();
                let all =
                    PipelineTimeline::of(ranks(&loads, &[hop; 15], &scheduled, &OrderCache::default()).unwrap().0);
                for (ours, all) in ours.ranks.iter().zip(&all.ranks) {
                    assert!((ours.end / all.end - 1.0).abs() < 0.01, "{schedule}: {ours:?}, {all:?}");
                }
            }
        }
    }
}
