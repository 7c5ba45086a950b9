//! Lower bound on the time it costs to fit in memory: layers recompute values they could save, or offload them to host
//! memory.

use super::blocks::Blocks;
use super::path::Path;
use super::pipeline::{Least, Returns, least_kept};
use super::stages::Count;
use cost::{Again, Machine, Profile};
use scheduler::placement::Pipeline;
use scheduler::schedules::ScheduleKind;
use smallvec::SmallVec;

/// What a family of layouts may do to fit.
#[derive(Clone, Debug)]
pub(crate) struct Means {
    /// Whether nothing or parts of layers may be computed again.
    pub(crate) parts: bool,
    /// How many layers of each stage may be computed again as a whole; all, if it has fewer.
    pub(crate) whole: Vec<u32>,
    /// Whether what is kept lies with the host: what of it is open.
    pub(crate) hosts: Vec<bool>,
}

impl Means {
    /// Those of a family in which all is decided.
    pub(crate) const NONE: Means = Means { parts: false, whole: Vec::new(), hosts: Vec::new() };

    /// Whether nothing is open.
    pub(super) fn are_none(&self) -> bool {
        self.hosts.is_empty()
    }
}

/// A run of a block: seconds of its forward and of its backward beyond those where it keeps all on the device, bytes that it
/// keeps there, and seconds that come to the one or the other.
pub(super) type Run = [f64; 4];

/// Some of what a block keeps, to be made again: bytes, and the seconds that it takes.
#[derive(Clone, Copy, Debug)]
struct Saving {
    block: usize,
    bytes: f64,
    seconds: f64,
}

/// The ways in which the runs of a model can keep less.
#[derive(Debug)]
pub(super) struct Ways {
    /// By values that are made again, the least seconds for a byte first: what no choice of values is better than.
    savings: Vec<Saving>,
    /// The same of each kind of layers.
    kinds: Vec<Vec<Saving>>,
    /// A run of each block with the host that takes no longer in either pass, nor in both, than by any choice of values.
    hosted: Vec<Run>,
    /// A run of each block that is computed again as a whole, kept on the device, and with the host.
    whole: [Vec<Run>; 2],
    /// The same with nothing computed again.
    none: [Vec<Run>; 2],
    /// Whether layers that are computed again take no less in either pass, and keep no more.
    ascends: [bool; 2],
}

impl Ways {
    /// Those of blocks that keep all, by the choices of values of each, and by what they are computed again as a whole.
    /// `waits`: whether what a run waits for the host follows from its profile, as it does but where attention sees documents.
    pub(super) fn of(all: &Blocks, choices: &[Vec<Again>], whole: &Blocks, machine: &Machine<'_>, waits: bool) -> Ways {
        let way = |profiles: &[Profile], is_hosted: bool| -> Vec<Run> {
            let of = |(profile, all): (&Profile, &Profile)| {
                let more = [0, 1].map(|pass| passes(profile)[pass] - passes(all)[pass]);
                let wait = if is_hosted && waits { waits_for_host(profile, machine) } else { [0.0; 2] };
                [more[0] + wait[0], more[1] + wait[1], if is_hosted { 0.0 } else { profile.kept }, 0.0]
            };
            profiles.iter().zip(&all.profiles).map(of).collect()
        };
        let again = whole.again.as_ref().unwrap_or(&whole.profiles);
        let both = [false, true];
        let none = both.map(|hosted| way(&all.profiles, hosted));
        let best_hosted = |(block, choices): (usize, &Vec<Again>)| {
            let none = none[1][block];
            let of = |again: &Again| {
                if waits { hosted(&all.profiles[block], [again.bytes, again.least], machine) } else { [0.0; 4] }
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
        Ways { savings, kinds, hosted, whole, none, ascends }
    }

    /// Bytes that a stage keeps less after all savings of all kinds of layers but one.
    fn all_but(&self, kind: usize, runs: &[Count]) -> f64 {
        let others = self.kinds.iter().enumerate().filter(|(other, _)| *other != kind);
        others.map(|(_, savings)| after(savings, runs, savings.len() as f64)[1]).sum()
    }
}

/// Seconds that a micro-batch takes more on a stage, and bytes that it keeps less, after each of some savings.
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

    /// After so many of them, and a part of the next.
    fn after(&self, share: f64) -> [f64; 2] {
        let (whole, part) = (share as usize, share.fract());
        let before = self.0[whole];
        let next = self.0.get(whole + 1).unwrap_or(&before);
        [0, 1].map(|at| before[at] + part * (next[at] - before[at]))
    }
}

/// The same after so many of some savings.
fn after(savings: &[Saving], runs: &[Count], share: f64) -> [f64; 2] {
    Saved::of(savings, runs).after(share)
}

/// The lower hull of a block's choices, from all kept on.
fn savings(block: usize, all: &Blocks, choices: &[Again]) -> Vec<Saving> {
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

/// A run of a block that keeps all, if it makes some values again in so many seconds and has the rest wait in the host's memory.
pub(super) fn hosted(all: &Profile, [rest, again]: [f64; 2], machine: &Machine<'_>) -> Run {
    let [forward, backward] = passes(all);
    let copy = rest / machine.cluster.device.host_bandwidth;
    [(copy - forward).max(0.0), again.max(copy - backward), 0.0, 0.0]
}

/// Seconds of the forward and of the backward.
fn passes(profile: &Profile) -> [f64; 2] {
    [profile.f.total(), profile.again.total() + profile.i.total() + profile.w.total()]
}

/// Seconds that the passes of a run wait for copies of what it keeps: to the host, and back.
fn waits_for_host(profile: &Profile, machine: &Machine<'_>) -> [f64; 2] {
    let copy = profile.kept / machine.cluster.device.host_bandwidth;
    passes(profile).map(|beside| (copy - beside).max(0.0))
}

/// A pipeline whose stages keep all, to be asked what it takes if they keep less.
pub(super) struct Fitting<'a> {
    pub(super) pipeline: (&'a ScheduleKind, &'a Pipeline),
    /// The runs of each stage.
    pub(super) counts: Vec<Vec<Count>>,
    /// Bytes that each stage keeps.
    pub(super) kept: Vec<f64>,
    /// What no order beats.
    pub(super) ranks: Vec<Least>,
    /// Seconds in which each rank's gradients are summed after its last backward.
    pub(super) reduce: Vec<f64>,
    /// What the end follows from in an order that no cost moves, and its seconds.
    pub(super) path: Option<(&'a Path, f64)>,
    /// How long what is kept is kept.
    pub(super) returns: Returns,
    /// Bytes of each rank's device at least, and of what its forwards keep there.
    pub(super) device: Vec<[f64; 2]>,
    /// What the allocator takes for each byte.
    pub(super) reserve: f64,
}

impl Fitting<'_> {
    /// Seconds until all gradients are summed at least, by those means with which every device has `room` bytes or more;
    /// infinite where there are none.
    pub(super) fn seconds(&self, ways: &Ways, means: &Means, room: f64) -> f64 {
        let of_host = |&hosted: &bool| {
            let parts = match (means.parts, hosted) {
                (false, _) => f64::INFINITY,
                (true, true) => self.under(|runs| sum_of(runs, &ways.hosted), room).unwrap_or(f64::INFINITY),
                (true, false) => self.by_values(ways, room),
            };
            let whole = |most: &u32| self.under(|runs| whole_layers(runs, ways, hosted, *most), room);
            let mut some = &means.whole[..];
            if ways.ascends[usize::from(hosted)] {
                // The fewest that fit take least.
                let fewest = some.partition_point(|most| whole(most).is_none());
                some = &some[fewest..some.len().min(fewest + 1)];
            }
            some.iter().filter_map(whole).fold(parts, f64::min)
        };
        means.hosts.iter().map(of_host).fold(f64::INFINITY, f64::min)
    }

    /// Seconds until all gradients are summed at least, where values are made again: on each rank as few as it must. Layers of
    /// one kind all make the same again: as many as the rank that must most, even where those of all other kinds make all again.
    fn by_values(&self, ways: &Ways, room: f64) -> f64 {
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
        let along = |path: &Path| path.runs.iter().zip(&self.counts).map(of_stage).sum::<f64>();
        let chain = self.path.map_or(0.0, |(path, seconds)| seconds + along(path) + self.reduce[path.rank]);
        all.fold(end, f64::max).max(chain)
    }

    /// How many of some savings, and what part of the next, a rank needs beside the `rest` that it saves to keep no more than so
    /// many bytes; none: all are too few.
    fn share(
        &self,
        (rank, least): (u32, &Least),
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

    /// The ranks by number, each with the time when gradients are summed at the earliest.
    fn all_ranks(&self) -> impl Iterator<Item = (u32, &Least, f64)> {
        let summed = |((rank, least), own): ((u32, _), &f64)| (rank, least, Least::summed(least, *own, self.reduce[0]));
        (0..).zip(&self.ranks).zip(&self.reduce).map(summed)
    }

    /// Seconds of a rank whose stages take so many more for a micro-batch.
    fn more(&self, least: &Least, stage: impl Fn(&[Count]) -> f64) -> f64 {
        least.longer(|at| stage(&self.counts[at]))
    }

    /// Seconds until all gradients are summed at least, if stages take so many seconds more for a micro-batch and keep so many
    /// bytes, and every device has room.
    fn under(&self, stage: impl Fn(&[Count]) -> Run, room: f64) -> Option<f64> {
        let stages: SmallVec<[Run; 16]> = self.counts.iter().map(|runs| stage(runs)).collect();
        let kept: SmallVec<[f64; 16]> = stages.iter().map(|[_, _, kept, _]| *kept).collect();
        let more = |runs: &[f64; 3], [forward, backward, _, either]: &Run| {
            runs[0] * forward + runs[1] * backward + runs[0].min(runs[1]) * either
        };
        // What takes less time makes the way through other stages shorter.
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
        let along = |path: &Path| path.runs.iter().zip(&stages).map(|(runs, stage)| more(runs, stage)).sum::<f64>();
        Some(self.path.map_or(end, |(path, seconds)| end.max(seconds + along(path) + self.reduce[path.rank])))
    }
}

/// How finely the part of a saving is worked out that is needed.
const HALVINGS: usize = 8;

/// Sums in another order count as this much less.
pub(super) const ROUNDING: f64 = 1e-9;

/// The sum over all runs of a stage.
pub(super) fn sum(runs: &[Count], of: impl Fn(&Count) -> f64) -> f64 {
    runs.iter().map(|run| run.times * of(run)).sum()
}

/// A stage whose runs are all as a way has them.
fn sum_of(runs: &[Count], way: &[Run]) -> Run {
    [0, 1, 2, 3].map(|at| sum(runs, |run| way[run.block][at]))
}

/// A stage of whose layers so many are computed again, if it has as many: they save as much as any can, and cost as little.
fn whole_layers(runs: &[Count], ways: &Ways, hosted: bool, most: u32) -> Run {
    let (none, whole) = (&ways.none[usize::from(hosted)], &ways.whole[usize::from(hosted)]);
    let layers = || runs.iter().filter(|run| run.are_layers);
    let again = layers().map(|run| run.times).sum::<f64>().min(f64::from(most));
    let least =
        |at: usize| layers().map(|run| whole[run.block][at] - none[run.block][at]).fold(f64::INFINITY, f64::min);
    let stage = sum_of(runs, none);
    if again > 0.0 { [0, 1, 2, 3].map(|at| stage[at] + again * least(at)) } else { stage }
}
