//! Simulation of the stages in the order of the configuration's schedule.

use super::action_order::OrderCache;
use super::critical_path::CriticalPath;
use super::stages::StageCost;
use compiler::compile_error::CompileError;
use compiler::error::Error;
use ir::limits;
use scheduler::costs::{CostsFile, PerStage, StageCosts};
use scheduler::placement::{Pipeline, Placement};
use scheduler::schedules::ScheduleKind;
use scheduler::simulate::Idle;
use smallvec::SmallVec;

/// A step of a pipeline, up to the last backward.
#[derive(Debug)]
pub(super) struct PipelineTimeline {
    /// Of each rank.
    pub(super) ranks: Vec<Rank>,
    /// The idle share of the ranks in the mean.
    pub(super) bubble: f64,
    /// What its end follows from, if that is known.
    pub(super) path: Option<CriticalPath>,
}

/// Stages, and how often a rank runs their F, I and W: most have one or two.
pub(super) type Runs = SmallVec<[(usize, [f64; 3]); 2]>;

/// What a rank does.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Rank {
    /// The stages that it runs.
    pub(super) stages: Runs,
    /// When its last action ends.
    pub(super) end: f64,
    /// Where it waits.
    pub(super) idle: Idle,
    /// Seconds of the messages that it sends and gets, half of each.
    pub(super) messages: f64,
    /// The most bytes that forwards keep at once on the device.
    pub(super) kept: f64,
    /// The same in the host's memory, where activations are offloaded.
    pub(super) offloaded: f64,
    /// The most micro-batches in flight of the last stage that it has.
    pub(super) in_flight: f64,
}

/// Actions up to which all micro-batches are simulated.
const SIMULATED: u64 = 4096;

/// Actions up to which more of them are simulated where further rounds are not all the same.
const UNSETTLED: u64 = 1 << 16;

/// Seconds that differ by less of their sum are the same.
const SAME: f64 = 1e-6;

/// Orders and simulates the micro-batches of a step; `hops[s]` are the seconds between stages s and s + 1. Of many, only as
/// many as fill the pipeline a few times: from then on each further round of them adds the same to every figure. Where stages
/// are uneven, a slower one may hold up the others only after many rounds.
///
/// # Errors
/// The schedule does not suit the pipeline.
pub(super) fn flow(
    loads: &[StageCost],
    hops: &[f64],
    kind: &ScheduleKind,
    pipeline: &Pipeline,
    orders: &OrderCache,
) -> Result<PipelineTimeline, Error> {
    let flow = simulated(loads, hops, kind, pipeline, orders)?;
    Ok(if loads.iter().any(|load| load.offloaded > 0.0) { flow.offloaded() } else { flow })
}

/// The same, with all that forwards keep on the device.
fn simulated(
    loads: &[StageCost],
    hops: &[f64],
    kind: &ScheduleKind,
    pipeline: &Pipeline,
    orders: &OrderCache,
) -> Result<PipelineTimeline, Error> {
    let microbatches = pipeline.microbatches;
    let of = |microbatches| ranks(loads, hops, kind, &Pipeline { microbatches, ..*pipeline }, orders);
    let whole =
        || of(microbatches).map(|(ranks, path)| PipelineTimeline { path: Some(path), ..PipelineTimeline::of(ranks) });
    let Some((mut filled, round)) = repeated(kind, pipeline) else { return whole() };
    loop {
        let ((few, path), (more, longer)) = (of(filled)?, of(filled + round)?);
        let next = 4 * filled - 3 * (filled % round); // four times as many rounds
        let is_beyond = next + round >= microbatches;
        if kind.repeats_rounds() && !is_settled(&few, &more) {
            if is_beyond && actions(pipeline) <= UNSETTLED {
                return whole();
            }
            if !is_beyond && actions(&Pipeline { microbatches: next, ..*pipeline }) <= UNSETTLED {
                filled = next;
                continue;
            }
        }
        let rounds = f64::from((microbatches - filled) / round);
        let mut ranks: Vec<Rank> = few.iter().zip(&more).map(|(few, more)| few.further(more, rounds)).collect();
        // Rounds that are not alike may add up to less than there is to do.
        let seconds: Vec<[f64; 3]> = loads.iter().map(StageCost::seconds).collect();
        hold(&mut ranks, &least_of_ranks(&seconds, hops, kind, pipeline));
        return Ok(PipelineTimeline { path: path.further(&longer, rounds), ..PipelineTimeline::of(ranks) });
    }
}

/// Whether a further round takes all ranks as long, as it does once the slowest holds up all others; as long as a rank waits or
/// keeps less with each round, it does not yet.
fn is_settled(few: &[Rank], more: &[Rank]) -> bool {
    let both = || few.iter().zip(more);
    let longer = || both().map(|(few, more)| more.end - few.end);
    let (least, most) = (longer().fold(f64::INFINITY, f64::min), longer().fold(0.0, f64::max));
    let waits = |rank: &Rank| rank.end - rank.busy();
    let is_no_less =
        |(few, more): (&Rank, &Rank)| waits(more) - waits(few) >= -SAME * most && more.kept >= (1.0 - SAME) * few.kept;
    most - least <= SAME * most && both().all(is_no_less)
}

fn actions(pipeline: &Pipeline) -> u64 {
    u64::from(pipeline.stages()) * u64::from(pipeline.microbatches) * u64::from(pipeline.slices)
}

/// Of a pipeline that is not simulated whole: the micro-batches that fill it, and those of a round.
fn repeated(kind: &ScheduleKind, pipeline: &Pipeline) -> Option<(u32, u32)> {
    let microbatches = pipeline.microbatches;
    let (simulated, rounds) = if kind.repeats_rounds() { (SIMULATED, 1) } else { (SIMULATED * LONG, LONG as u32) };
    // Two chains share the micro-batches.
    let round = pipeline.ranks * rounds * if pipeline.placement == Placement::Bidirectional { 2 } else { 1 };
    let filled = 3 * round + microbatches % round;
    (actions(pipeline) > simulated && pipeline.group.is_none() && microbatches > filled + round)
        .then_some((filled, round))
}

/// How many times as many of both where rounds are not alike.
const LONG: u64 = 8;

/// How long what forwards keep is kept at least: what a rank holds in the mean of a step, and so at most, is what each of its
/// stages keeps, times how often, times how long, over the seconds of the step (Little 1961).
pub(super) struct ActivationLifetime {
    /// Seconds between the end of each stage's forward and the start of its backward.
    seconds: Vec<f64>,
    /// Seconds of the step at most.
    within: f64,
}

impl ActivationLifetime {
    /// Of stages with these seconds of F, I and W, in steps of so many seconds or less. Of slices, and of pipelines that are not
    /// simulated whole, nothing is said.
    pub(super) fn of(
        seconds: &[[f64; 3]],
        hops: &[f64],
        kind: &ScheduleKind,
        pipeline: &Pipeline,
        within: f64,
    ) -> ActivationLifetime {
        let mut returns = vec![0.0; seconds.len()];
        if pipeline.slices == 1 && repeated(kind, pipeline).is_none() {
            for stage in (1..seconds.len()).rev() {
                let [f, i, w] = seconds[stage];
                let hop = if pipeline.ranks > 1 { hops[stage - 1] } else { 0.0 };
                returns[stage - 1] = returns[stage] + f + i + if !kind.splits_backward { w } else { 0.0 } + 2.0 * hop;
            }
        }
        ActivationLifetime { seconds: returns, within }
    }

    /// Bytes that a rank holds in the mean, if the way to the last stage and back takes so many seconds `more`.
    fn kept(&self, stages: &[(usize, [f64; 3])], kept: &[f64], more: f64) -> f64 {
        let of = |(stage, [forwards, ..]): &(usize, [f64; 3])| {
            forwards * kept[*stage] * (self.seconds[*stage] + more).max(0.0)
        };
        stages.iter().map(of).sum::<f64>() / self.within
    }
}

/// What no order of a schedule's kind beats on a rank.
pub(super) struct RankBound {
    /// The stages that it runs.
    pub(super) stages: Runs,
    /// When the first micro-batch can have reached its first stage.
    before: f64,
    /// Seconds in which it works.
    work: f64,
    /// When all that must follow its last backward can have ended.
    chain: f64,
}

impl RankBound {
    /// When a step with such a rank ends at the earliest.
    pub(super) fn end(&self) -> f64 {
        self.summed(0.0, 0.0)
    }

    /// The same if it takes so many seconds to sum the gradients of this rank, and of the first one, where all chains end.
    pub(super) fn summed(&self, own: f64, first: f64) -> f64 {
        (self.chain + first).max(self.before + self.work + own)
    }

    /// Seconds that its backwards take more, if that of each of its stages does so for a micro-batch.
    pub(super) fn longer(&self, stage: impl Fn(usize) -> f64) -> f64 {
        self.stages.iter().map(|(at, runs)| runs[1] * stage(*at)).sum()
    }
}

/// Each rank of a pipeline whose stages take these seconds for F, I and W: it begins when the first micro-batch can have
/// reached its first stage, and then works without a pause. After its last input gradient those of all stages before it must
/// follow, after its last whole backward the whole backwards.
pub(super) fn least_of_ranks(
    seconds: &[[f64; 3]],
    hops: &[f64],
    kind: &ScheduleKind,
    pipeline: &Pipeline,
) -> Vec<RankBound> {
    let slices = f64::from(pipeline.slices);
    let is_whole = !kind.splits_backward;
    // Seconds of the way of a slice through all stages before each, forward and backward.
    let mut ways = vec![[0.0; 2]; seconds.len()];
    for stage in 1..seconds.len() {
        let [forward, backward] = ways[stage - 1];
        let [f, i, w] = seconds[stage - 1].map(|seconds| seconds / slices);
        let hop = if pipeline.ranks > 1 { hops[stage - 1] / slices } else { 0.0 };
        ways[stage] = [forward + f + hop, backward + i + hop + if is_whole { w } else { 0.0 }];
    }
    let of = |rank: u32| {
        let stages = runs_of(rank, pipeline);
        let parts = |part: usize| stages.iter().map(|(stage, runs)| seconds[*stage][part] * runs[part]).sum::<f64>();
        let weights = parts(2);
        let work = parts(0) + parts(1) + weights;
        let first = stages.iter().map(|(stage, _)| *stage).min().unwrap_or(0);
        let [before, after] = ways[first];
        // The first stage's own weight gradient follows its last input gradient.
        let (chained, behind) =
            if is_whole || first == 0 { (work, 0.0) } else { (work - weights, seconds[0][2] / slices) };
        RankBound { stages, before, work, chain: before + chained + after + behind }
    };
    (0..pipeline.ranks).map(of).collect()
}

/// Bytes that a rank holds of what forwards keep: as many of them as the kind has on it at least, or as many as return so late.
pub(super) fn least_kept(
    rank: u32,
    stages: &[(usize, [f64; 3])],
    kept: &[f64],
    (kind, pipeline): (&ScheduleKind, &Pipeline),
    (returns, more): (&ActivationLifetime, f64),
) -> f64 {
    let each = || stages.iter().map(|(stage, _)| kept[*stage] / f64::from(pipeline.slices));
    let all = f64::from(kind.min_in_flight(rank, pipeline)) * each().fold(f64::INFINITY, f64::min);
    each().fold(all, f64::max).max(returns.kept(stages, kept, more))
}

/// A flow that no order of the schedule's kind beats, of stages with these seconds of F, I and W and bytes that a forward
/// keeps, in steps of so many seconds or less: the rank that has the first stage ends no earlier than what must follow the last
/// backward of any.
pub(super) fn least(
    seconds: &[[f64; 3]],
    kept: &[f64],
    hops: &[f64],
    (kind, pipeline): (&ScheduleKind, &Pipeline),
    within: f64,
) -> PipelineTimeline {
    let ranks = least_of_ranks(seconds, hops, kind, pipeline);
    let returns = ActivationLifetime::of(seconds, hops, kind, pipeline, within);
    let of = |(rank, least): (u32, &RankBound)| {
        let kept = least_kept(rank, &least.stages, kept, (kind, pipeline), (&returns, 0.0));
        let idle = Idle { dependency: least.before, ..Idle::default() };
        let (stages, end) = (least.stages.clone(), least.before + least.work);
        Rank { stages, end, idle, kept, ..Rank::default() }
    };
    let mut flow: Vec<Rank> = (0..).zip(&ranks).map(of).collect();
    hold(&mut flow, &ranks);
    PipelineTimeline::of(flow)
}

/// No rank ends before its work can be done, nor the one that has the first stage before what must follow the last backward of
/// any.
fn hold(ranks: &mut [Rank], least: &[RankBound]) {
    let last = least.iter().map(|least| least.chain).fold(0.0, f64::max);
    for (rank, least) in ranks.iter_mut().zip(least) {
        rank.wait_until(least.before + least.work);
    }
    if let Some(first) = ranks.first_mut() {
        first.wait_until(last);
    }
}

/// The stages of a rank with how often it runs their F, I and W. Two chains share the micro-batches.
fn runs_of(rank: u32, pipeline: &Pipeline) -> Runs {
    let microbatches = f64::from(pipeline.microbatches);
    if pipeline.placement != Placement::Bidirectional {
        return pipeline.stages_of(rank, 0).map(|stage| (stage as usize, [microbatches; 3])).collect();
    }
    let down = f64::from(pipeline.microbatches.div_ceil(2));
    let pair = [(rank as usize, down), ((pipeline.ranks - 1 - rank) as usize, microbatches - down)];
    let mut stages = Runs::new();
    for (stage, runs) in pair.into_iter().filter(|(_, runs)| *runs > 0.0) {
        match stages.iter_mut().find(|(other, _)| *other == stage) {
            Some((_, both)) => both.iter_mut().for_each(|both| *both += runs),
            None => stages.push((stage, [runs; 3])),
        }
    }
    stages.sort_by_key(|(stage, _)| *stage);
    stages
}

/// What each rank does for all micro-batches of a pipeline, and what the end follows from.
fn ranks(
    loads: &[StageCost],
    hops: &[f64],
    kind: &ScheduleKind,
    pipeline: &Pipeline,
    orders: &OrderCache,
) -> Result<(Vec<Rank>, CriticalPath), Error> {
    if actions(pipeline) > limits::ACTIONS {
        let (runs, microbatches) = (u64::from(pipeline.stages()), pipeline.microbatches);
        return Err(CompileError::TooManyActions { runs, microbatches }.into());
    }
    let slices = f64::from(pipeline.slices);
    let costs = costs(loads, hops, slices);
    Ok(orders.get(kind, pipeline, &costs)?.run(&costs, hops, slices))
}

/// What an action of each stage takes, in seconds and bytes.
pub(super) fn costs(loads: &[StageCost], hops: &[f64], slices: f64) -> StageCosts {
    let each = |of: &dyn Fn(&StageCost) -> f64| loads.iter().map(|load| of(load) / slices).collect::<Vec<f64>>();
    StageCosts {
        f: each(&|load| load.seconds()[0]),
        i: each(&|load| load.seconds()[1]),
        w: each(&|load| load.seconds()[2]),
        comm: hops.iter().map(|hop| hop / slices).collect(),
        mem_f: each(&StageCost::saved),
        mem_i: each(&|load| load.saved() - load.held_for_w.min(load.saved())),
        mem_w: each(&|load| load.held_for_w.min(load.saved())),
        ..StageCosts::uniform(loads.len() as u32, 0.0, 0.0, 0.0, 0.0)
    }
}

/// The same in ms and GiB, as a schedule is asked for.
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
        mem_i: gib(costs.mem_i),
        ..CostsFile::default()
    }
}

impl PipelineTimeline {
    fn of(ranks: Vec<Rank>) -> PipelineTimeline {
        let last = ranks.iter().map(|rank| rank.end).fold(0.0, f64::max);
        let busy = ranks.iter().map(Rank::busy).sum::<f64>() / ranks.len().max(1) as f64;
        PipelineTimeline { ranks, bubble: if last > 0.0 { 1.0 - busy / last } else { 0.0 }, path: None }
    }
}

impl PipelineTimeline {
    /// The same where all that forwards keep waits in the host's memory.
    fn offloaded(mut self) -> PipelineTimeline {
        self.ranks.iter_mut().for_each(|rank| rank.offloaded = std::mem::take(&mut rank.kept));
        self
    }
}

impl Rank {
    /// Seconds in which it works.
    pub(super) fn busy(&self) -> f64 {
        self.end - self.idle.dependency - self.idle.latency - self.idle.memory
    }

    /// Ends no earlier than so.
    pub(super) fn wait_until(&mut self, end: f64) {
        self.idle.dependency += (end - self.end).max(0.0);
        self.end = self.end.max(end);
    }

    /// The figures so many rounds later, if `more` are those of one.
    fn further(&self, more: &Rank, rounds: f64) -> Rank {
        let at = |few: f64, more: f64| few + (more - few) * rounds;
        let stages = self.stages.iter().zip(&more.stages).map(|((stage, few), (_, more))| {
            let mut runs = *few;
            runs.iter_mut().zip(more).for_each(|(few, more)| *few = at(*few, *more));
            (*stage, runs)
        });
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
            kept: at(self.kept, more.kept).max(self.kept),
            offloaded: 0.0,
            in_flight: at(self.in_flight, more.in_flight),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cost::Seconds;
    use ir::options::ParallelConfig;
    use scheduler::predict::pipeline_of;

    /// Four stages of which the last is slower.
    fn loads() -> Vec<StageCost> {
        let load = |gemm: f64| {
            let seconds = Seconds { gemm, ..Seconds::default() };
            StageCost { f: seconds, i: seconds, w: seconds, kept: 10.0, ..StageCost::default() }
        };
        [1.0, 1.0, 1.1, 1.3].map(load).to_vec()
    }

    #[test]
    fn many_microbatches_are_as_if_all_had_been_simulated() {
        for schedule in ["1f1b", "gpipe", "zb-h1", "interleaved-1f1b", "dualpipe"] {
            let chunks = if schedule.starts_with("interleaved") { 2 } else { 1 };
            let parallel = ParallelConfig { pp: 4 / chunks, schedule: schedule.into(), ..ParallelConfig::default() };
            for microbatches in [1502, 2048] {
                let (kind, pipeline) = pipeline_of(&parallel, microbatches).unwrap();
                let ours = flow(&loads(), &[0.1; 3], kind, &pipeline, &OrderCache::default()).unwrap();
                let all = PipelineTimeline::of(
                    ranks(&loads(), &[0.1; 3], kind, &pipeline, &OrderCache::default()).unwrap().0,
                );
                for (ours, all) in ours.ranks.iter().zip(&all.ranks) {
                    assert!((ours.end / all.end - 1.0).abs() < 1e-9, "{schedule}: {ours:?}, {all:?}");
                    assert!((ours.busy() / all.busy() - 1.0).abs() < 1e-9, "{schedule}: {ours:?}, {all:?}");
                    assert!((ours.kept / all.kept - 1.0).abs() < 1e-9, "{schedule}: {ours:?}, {all:?}");
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
            StageCost { f: seconds, i: seconds, w: seconds, kept: 10.0, ..StageCost::default() }
        };
        let wide = ["grouped-interleaved", "interleaved-1f1b", "interleaved-zb"].map(|kind| (kind, 4, Some(4)));
        let folded = ["zb-v", "v-half", "v-min", "1f1b-v", "dualpipe-v"].map(|kind| (kind, 8, None));
        let deep = ["1f1b", "zb-h1", "zb-h2", "dualpipe", "chimera"].map(|kind| (kind, 16, None));
        let kinds = wide.into_iter().chain(folded).chain(deep);
        // GPT-3 175B on 12 ranks: groups of 12 micro-batches, of which the last is smaller.
        let cases = kinds.map(|kind| (kind, 640)).chain([(("interleaved-zb", 12, Some(8)), 64)]);
        for ((schedule, pp, vp), microbatches) in cases {
            let parallel = ParallelConfig { pp, vp, schedule: schedule.into(), ..ParallelConfig::default() };
            let (kind, pipeline) = pipeline_of(&parallel, microbatches).unwrap();
            let loads: Vec<StageCost> = (0..pipeline.stages() as usize).map(load).collect();
            let hops = vec![0.01; loads.len() - 1];
            let ours = flow(&loads, &hops, kind, &pipeline, &OrderCache::default()).unwrap();
            let all = PipelineTimeline::of(ranks(&loads, &hops, kind, &pipeline, &OrderCache::default()).unwrap().0);
            for (ours, all) in ours.ranks.iter().zip(&all.ranks) {
                assert!((ours.end / all.end - 1.0).abs() < 1e-5, "{schedule}: {ours:?}, {all:?}");
                assert!((ours.kept / all.kept - 1.0).abs() < 1e-5, "{schedule}: {ours:?}, {all:?}");
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
                let (kind, pipeline) = pipeline_of(&parallel, 3000).unwrap();
                let ours = flow(&loads, &[hop; 15], kind, &pipeline, &OrderCache::default()).unwrap();
                let all =
                    PipelineTimeline::of(ranks(&loads, &[hop; 15], kind, &pipeline, &OrderCache::default()).unwrap().0);
                for (ours, all) in ours.ranks.iter().zip(&all.ranks) {
                    assert!((ours.end / all.end - 1.0).abs() < 0.01, "{schedule}: {ours:?}, {all:?}");
                }
            }
        }
    }
}
