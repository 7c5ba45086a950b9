//! Lower bound on the time it costs to fit in memory: layers recompute values they could save, or offload them to host
//! memory.

use super::blocks::Blocks;
use super::critical_path::CriticalPath;
use super::pipeline::{ActivationLifetime, RankBound, least_kept};
use super::stages::Count;
use cost::{Platform, Profile, RecomputeChoice};
use scheduler::placement::Pipeline;
use scheduler::schedules::ScheduleKind;
use smallvec::SmallVec;

/// Options of a search node for saving memory.
#[derive(Clone, Debug)]
pub struct MemoryChoices {
    /// `true` if nothing or parts of layers may be recomputed.
    pub parts: bool,
    /// Numbers of layers of each stage that may be recomputed as a whole; a stage with fewer layers recomputes all of them.
    pub whole: Vec<u32>,
    /// Open values of offloading: saved activations stay on the device (`false`) or are offloaded (`true`).
    pub hosts: Vec<bool>,
}

impl MemoryChoices {
    /// Options of a search node in which everything is decided.
    pub const NONE: MemoryChoices = MemoryChoices { parts: false, whole: Vec::new(), hosts: Vec::new() };

    /// Returns `true` if no option is open.
    pub(super) fn are_none(&self) -> bool {
        self.hosts.is_empty()
    }
}

/// Cost of one block instance relative to saving all its activations on the device: extra forward seconds, extra backward
/// seconds, bytes saved on the device, and extra seconds of either pass.
pub(super) type Run = [f64; 4];

/// Saved values of a block to recompute: bytes, and the seconds of recomputing them.
#[derive(Clone, Copy, Debug)]
struct Saving {
    block: usize,
    bytes: f64,
    seconds: f64,
}

/// Options of a model's block instances to save less.
#[derive(Debug)]
pub(super) struct RecomputeOptions {
    /// Recomputed values, fewest seconds per byte first: a lower bound on all choices of values.
    savings: Vec<Saving>,
    /// The same for each kind of layer.
    kinds: Vec<Vec<Saving>>,
    /// Lower bound on an instance of each block with offloading: no choice of values takes less in either pass or in both.
    hosted: Vec<Run>,
    /// An instance of each block that is recomputed as a whole: saved on the device, and offloaded.
    whole: [Vec<Run>; 2],
    /// The same without recomputation.
    none: [Vec<Run>; 2],
    /// `true` if recomputed layers take no less in either pass, and save no more.
    ascends: [bool; 2],
}

impl RecomputeOptions {
    /// Options of blocks that save everything, from the choices of values of each block and the costs of recomputing it as a
    /// whole. `waits`: the seconds an instance waits for the host follow from its profile, as they do unless attention is
    /// masked by documents.
    pub(super) fn of(
        all: &Blocks,
        choices: &[Vec<RecomputeChoice>],
        whole: &Blocks,
        platform: &Platform<'_>,
        waits: bool,
    ) -> RecomputeOptions {
        let way = |profiles: &[Profile], is_hosted: bool| -> Vec<Run> {
            let of = |(profile, all): (&Profile, &Profile)| {
                let more = [0, 1].map(|pass| passes(profile)[pass] - passes(all)[pass]);
                let wait = if is_hosted && waits { waits_for_host(profile, platform) } else { [0.0; 2] };
                [more[0] + wait[0], more[1] + wait[1], if is_hosted { 0.0 } else { profile.kept }, 0.0]
            };
            profiles.iter().zip(&all.profiles).map(of).collect()
        };
        let again = whole.again.as_ref().unwrap_or(&whole.profiles);
        let both = [false, true];
        let none = both.map(|hosted| way(&all.profiles, hosted));
        let best_hosted = |(block, choices): (usize, &Vec<RecomputeChoice>)| {
            let none = none[1][block];
            let of = |again: &RecomputeChoice| {
                if waits { hosted(&all.profiles[block], [again.bytes, again.least], platform) } else { [0.0; 4] }
            };
            let both = |run: &Run| run[0] + run[1];
            let least = choices.iter().map(of).fold([none, none], |[each, sum], run| {
                [[0, 1, 2, 3].map(|at| each[at].min(run[at])), if both(&run) < both(&sum) { run } else { sum }]
            });
            let [[forward, backward, kept, _], sum] = least;
            [forward, backward, kept, both(&sum) - forward - backward]
        };
        let hosted = choices.iter().enumerate().map(best_hosted).collect();
        let kinds = choices.iter().enumerate().map(|(block, choices)| savings(block, all, choices));
        let kinds: Vec<Vec<Saving>> = kinds.filter(|savings| !savings.is_empty()).collect();
        let mut savings = kinds.concat();
        savings.sort_by(|a, b| (a.seconds / a.bytes).total_cmp(&(b.seconds / b.bytes)));
        let whole = both.map(|hosted| way(again, hosted));
        let is_more = |(whole, none): (&Run, &Run)| whole[0] >= none[0] && whole[1] >= none[1] && whole[2] <= none[2];
        let ascends = [0, 1].map(|hosted| whole[hosted].iter().zip(&none[hosted]).all(is_more));
        RecomputeOptions { savings, kinds, hosted, whole, none, ascends }
    }

    /// Bytes that a stage saves less after all savings of all kinds of layers except `kind`.
    fn all_but(&self, kind: usize, runs: &[Count]) -> f64 {
        let others = self.kinds.iter().enumerate().filter(|(other, _)| *other != kind);
        others.map(|(_, savings)| after(savings, runs, savings.len() as f64)[1]).sum()
    }
}

/// Extra seconds of a micro-batch on a stage, and reduction of its saved bytes, after each of some savings.
struct Saved(Vec<[f64; 2]>);

impl Saved {
    fn of(savings: &[Saving], runs: &[Count]) -> Saved {
        let mut sum = [0.0; 2];
        let after = |saving: &Saving| {
            let times = runs.iter().filter(|run| run.block == saving.block).map(|run| run.times).sum::<f64>();
            sum = [sum[0] + times * saving.seconds, sum[1] + times * saving.bytes];
            sum
        };
        Saved([[0.0; 2]].into_iter().chain(savings.iter().map(after)).collect())
    }

    /// Values after `share` savings, the last one taken in part.
    fn after(&self, share: f64) -> [f64; 2] {
        let (whole, part) = (share as usize, share.fract());
        let before = self.0[whole];
        let next = self.0.get(whole + 1).unwrap_or(&before);
        [0, 1].map(|at| before[at] + part * (next[at] - before[at]))
    }
}

/// The same after the first `share` of `savings`.
fn after(savings: &[Saving], runs: &[Count], share: f64) -> [f64; 2] {
    Saved::of(savings, runs).after(share)
}

/// Lower hull of a block's choices, starting from saving everything.
fn savings(block: usize, all: &Blocks, choices: &[RecomputeChoice]) -> Vec<Saving> {
    let mut hull: Vec<[f64; 2]> = vec![[all.profiles[block].kept, 0.0]];
    for choice in choices.iter().filter(|choice| choice.bytes < all.profiles[block].kept) {
        let next = [choice.bytes, choice.least];
        let slope = |from: &[f64; 2], to: &[f64; 2]| (to[1] - from[1]) / (from[0] - to[0]);
        while hull.len() > 1
            && slope(&hull[hull.len() - 2], &next) <= slope(&hull[hull.len() - 2], &hull[hull.len() - 1])
        {
            hull.pop();
        }
        hull.push(next);
    }
    let pairs = hull.windows(2);
    pairs.map(|pair| Saving { block, bytes: pair[0][0] - pair[1][0], seconds: pair[1][1] - pair[0][1] }).collect()
}

/// Cost of a block instance that recomputes some values in `again` seconds and offloads the rest to host memory.
pub(super) fn hosted(all: &Profile, [rest, again]: [f64; 2], platform: &Platform<'_>) -> Run {
    let [forward, backward] = passes(all);
    let copy = rest / platform.cluster.device.host_bandwidth;
    [(copy - forward).max(0.0), again.max(copy - backward), 0.0, 0.0]
}

/// Seconds of the forward and of the backward.
fn passes(profile: &Profile) -> [f64; 2] {
    [profile.f.total(), profile.again.total() + profile.i.total() + profile.w.total()]
}

/// Seconds that the passes of a block instance wait for copies of its saved activations: to the host, and back.
fn waits_for_host(profile: &Profile, platform: &Platform<'_>) -> [f64; 2] {
    let copy = profile.kept / platform.cluster.device.host_bandwidth;
    passes(profile).map(|beside| (copy - beside).max(0.0))
}

/// A pipeline whose stages save everything, queried for its time if the stages save less.
pub(super) struct MemoryFit<'a> {
    pub(super) pipeline: (&'a ScheduleKind, &'a Pipeline),
    /// Block instances of each stage.
    pub(super) counts: Vec<Vec<Count>>,
    /// Bytes that each stage saves.
    pub(super) kept: Vec<f64>,
    /// Lower bounds of each rank over all orders.
    pub(super) ranks: Vec<RankBound>,
    /// Seconds of the reduction of each rank's gradients after its last backward.
    pub(super) reduce: Vec<f64>,
    /// Critical path of an order that does not depend on costs, and its seconds.
    pub(super) path: Option<(&'a CriticalPath, f64)>,
    /// Lower bounds on how long activations stay saved.
    pub(super) returns: ActivationLifetime,
    /// Lower bound on the bytes of each rank's device, and of those the bytes its forwards save.
    pub(super) device: Vec<[f64; 2]>,
    /// Bytes the allocator reserves for each byte.
    pub(super) reserve: f64,
}

impl MemoryFit<'_> {
    /// Lower bound on the seconds until all gradients are reduced, over those options with which every device has a budget of
    /// `room` bytes; infinite if there are none.
    pub(super) fn seconds(&self, ways: &RecomputeOptions, means: &MemoryChoices, room: f64) -> f64 {
        let of_host = |&hosted: &bool| {
            let parts = match (means.parts, hosted) {
                (false, _) => f64::INFINITY,
                (true, true) => self.under(|runs| sum_of(runs, &ways.hosted), room).unwrap_or(f64::INFINITY),
                (true, false) => self.by_values(ways, room),
            };
            let whole = |most: &u32| self.under(|runs| whole_layers(runs, ways, hosted, *most), room);
            let mut some = &means.whole[..];
            if ways.ascends[usize::from(hosted)] {
                // The fewest layers that fit take least time.
                let fewest = some.partition_point(|most| whole(most).is_none());
                some = &some[fewest..some.len().min(fewest + 1)];
            }
            some.iter().filter_map(whole).fold(parts, f64::min)
        };
        means.hosts.iter().map(of_host).fold(f64::INFINITY, f64::min)
    }

    /// Lower bound on the seconds until all gradients are reduced, if values are recomputed. Each rank recomputes as few as
    /// it must. All layers of one kind recompute the same values: those the neediest rank must recompute even if all other
    /// kinds recompute everything.
    fn by_values(&self, ways: &RecomputeOptions, room: f64) -> f64 {
        let (mut end, mut most) = (0.0_f64, vec![0.0_f64; ways.kinds.len()]);
        for ((rank, least, summed), [device, kept]) in self.all_ranks().zip(&self.device) {
            let free = (device * (1.0 - ROUNDING) - room) / self.reserve;
            let share = |savings: &[Saving], rest: &dyn Fn(&[Count]) -> f64| {
                self.share((rank, least), savings, rest, kept - free)
            };
            let Some(together) = share(&ways.savings, &|_| 0.0) else { return f64::INFINITY };
            end = end.max(summed + self.more(least, |runs| after(&ways.savings, runs, together)[0]));
            for (kind, most) in most.iter_mut().enumerate() {
                let alone = || share(&ways.kinds[kind], &|runs| ways.all_but(kind, runs)).unwrap_or(0.0);
                *most = most.max(if ways.kinds.len() > 1 { alone() } else { together });
            }
        }
        let stage = |runs: &[Count]| -> f64 {
            ways.kinds.iter().zip(&most).map(|(savings, most)| after(savings, runs, *most)[0]).sum()
        };
        let all = self.all_ranks().map(|(_, least, summed)| summed + self.more(least, stage));
        let of_stage = |(runs, counts): (&[f64; 3], &Vec<Count>)| runs[1] * stage(counts);
        let along = |path: &CriticalPath| path.runs.iter().zip(&self.counts).map(of_stage).sum::<f64>();
        let chain = self.path.map_or(0.0, |(path, seconds)| seconds + along(path) + self.reduce[path.rank]);
        all.fold(end, f64::max).max(chain)
    }

    /// Number of savings, the last one in part, that a rank needs in addition to the `rest` that it already saves, so that it
    /// holds no more than the given bytes. Returns `None` if all of them are too few.
    fn share(
        &self,
        (rank, least): (u32, &RankBound),
        savings: &[Saving],
        rest: &dyn Fn(&[Count]) -> f64,
        most: f64,
    ) -> Option<f64> {
        let mut kept = vec![0.0; self.counts.len()];
        let stage = |(at, _): &(usize, _)| {
            let counts = &self.counts[*at];
            (*at, self.kept[*at] - rest(counts), Saved::of(savings, counts))
        };
        let stages: Vec<(usize, f64, Saved)> = least.stages.iter().map(stage).collect();
        let mut is_enough = |share: f64| {
            stages.iter().for_each(|(at, before, saved)| kept[*at] = before - saved.after(share)[1]);
            least_kept(rank, &least.stages, &kept, self.pipeline, (&self.returns, 0.0)) <= most
        };
        if is_enough(0.0) {
            return Some(0.0);
        }
        if !is_enough(savings.len() as f64) {
            return None;
        }
        let whole = (0..savings.len()).collect::<Vec<_>>().partition_point(|&share| !is_enough(share as f64));
        let (mut low, mut high) = (whole as f64 - 1.0, whole as f64);
        for _ in 0..HALVINGS {
            let middle = (low + high) / 2.0;
            if is_enough(middle) { high = middle } else { low = middle }
        }
        Some(low)
    }

    /// Ranks by number, each with the earliest time at which its gradients are reduced.
    fn all_ranks(&self) -> impl Iterator<Item = (u32, &RankBound, f64)> {
        let summed =
            |((rank, least), own): ((u32, _), &f64)| (rank, least, RankBound::summed(least, *own, self.reduce[0]));
        (0..).zip(&self.ranks).zip(&self.reduce).map(summed)
    }

    /// Extra seconds of a rank whose stages take `stage` more seconds for a micro-batch.
    fn more(&self, least: &RankBound, stage: impl Fn(&[Count]) -> f64) -> f64 {
        least.longer(|at| stage(&self.counts[at]))
    }

    /// Lower bound on the seconds until all gradients are reduced, if stages take the extra seconds and save the bytes that
    /// `stage` returns. Returns `None` if some device exceeds its budget.
    fn under(&self, stage: impl Fn(&[Count]) -> Run, room: f64) -> Option<f64> {
        let stages: SmallVec<[Run; 16]> = self.counts.iter().map(|runs| stage(runs)).collect();
        let kept: SmallVec<[f64; 16]> = stages.iter().map(|[_, _, kept, _]| *kept).collect();
        let more = |runs: &[f64; 3], [forward, backward, _, either]: &Run| {
            runs[0] * forward + runs[1] * backward + runs[0].min(runs[1]) * either
        };
        // A pass that takes less time shortens the path through other stages.
        let shorter = stages.iter().map(|[forward, backward, ..]| forward.min(0.0) + backward.min(0.0)).sum::<f64>();
        let mut end = 0.0_f64;
        for ((rank, least, summed), [device, before]) in self.all_ranks().zip(&self.device) {
            let kept = least_kept(rank, &least.stages, &kept, self.pipeline, (&self.returns, shorter));
            if (device - self.reserve * (before - kept)) * (1.0 - ROUNDING) > room {
                return None;
            }
            let longer = least.stages.iter().map(|(at, runs)| more(runs, &stages[*at])).sum::<f64>();
            end = end.max(summed + longer);
        }
        let end = end + shorter;
        let along =
            |path: &CriticalPath| path.runs.iter().zip(&stages).map(|(runs, stage)| more(runs, stage)).sum::<f64>();
        Some(self.path.map_or(end, |(path, seconds)| end.max(seconds + along(path) + self.reduce[path.rank])))
    }
}

/// Number of bisection steps for the part of a saving that is needed.
const HALVINGS: usize = 8;

/// Relative tolerance for sums in another order.
pub(super) const ROUNDING: f64 = 1e-9;

/// Sum over all block instances of a stage.
pub(super) fn sum(runs: &[Count], of: impl Fn(&Count) -> f64) -> f64 {
    runs.iter().map(|run| run.times * of(run)).sum()
}

/// Cost of a stage whose block instances all use one option.
fn sum_of(runs: &[Count], way: &[Run]) -> Run {
    [0, 1, 2, 3].map(|at| sum(runs, |run| way[run.block][at]))
}

/// Lower bound on a stage that recomputes up to `most` of its layers: those that save as much and cost as little as any.
fn whole_layers(runs: &[Count], ways: &RecomputeOptions, hosted: bool, most: u32) -> Run {
    let (none, whole) = (&ways.none[usize::from(hosted)], &ways.whole[usize::from(hosted)]);
    let layers = || runs.iter().filter(|run| run.are_layers);
    let again = layers().map(|run| run.times).sum::<f64>().min(f64::from(most));
    let least =
        |at: usize| layers().map(|run| whole[run.block][at] - none[run.block][at]).fold(f64::INFINITY, f64::min);
    let stage = sum_of(runs, none);
    if again > 0.0 { [0, 1, 2, 3].map(|at| stage[at] + again * least(at)) } else { stage }
}
