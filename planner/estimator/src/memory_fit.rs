//! Lower bound on the time it costs to fit in memory: layers recompute values they could save, or offload them to host
//! memory.

use super::blocks::Blocks;
use super::critical_path::CriticalPath;
use super::pipeline::{ActivationLifetime, RankBound, ScheduledPipeline};
use super::quantities::PerSection;
use super::stages::{ByStage, Count, StageKinds};
use cost::{Passes, Platform, Profile, RecomputeChoice, RecomputeCost};
use ir::options::Offload;
use std::iter::Sum;
use std::ops::{Add, Mul};

/// Options of a search node for saving memory.
#[derive(Clone, Debug)]
pub struct MemoryChoices {
    /// `true` if nothing or parts of layers may be recomputed.
    pub selective: bool,
    /// Numbers of layers of each stage that may be recomputed as a whole; a stage with fewer layers recomputes all of them.
    pub full: Vec<u32>,
    /// Open values of offloading.
    pub offload: Vec<Offload>,
}

impl MemoryChoices {
    /// Options of a search node in which everything is decided.
    pub const NONE: MemoryChoices = MemoryChoices { selective: false, full: Vec::new(), offload: Vec::new() };

    /// Returns `true` if no option is open.
    pub(super) fn are_none(&self) -> bool {
        self.offload.is_empty()
    }

    /// Returns `true` if all saved activations may stay on the device.
    pub(super) fn may_keep(&self) -> bool {
        self.offload.iter().any(|offload| matches!(offload, Offload::None | Offload::Auto))
    }
}

/// Cost of one block instance, or of all instances of a stage, relative to saving all activations on the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OptionCost {
    /// Extra seconds of the forward.
    forward_s: f64,
    /// Extra seconds of the backward.
    backward_s: f64,
    /// Extra seconds of either pass.
    either_s: f64,
    /// Bytes saved on the device.
    saved_bytes: f64,
}

impl OptionCost {
    /// One value for all quantities.
    fn uniform(value: f64) -> OptionCost {
        OptionCost { forward_s: value, backward_s: value, either_s: value, saved_bytes: value }
    }

    /// Extra seconds of both passes.
    pub(super) fn seconds(&self) -> f64 {
        self.forward_s + self.backward_s + self.either_s
    }

    /// Combines each quantity with that of another option.
    fn zip(self, other: OptionCost, join: impl Fn(f64, f64) -> f64) -> OptionCost {
        OptionCost {
            forward_s: join(self.forward_s, other.forward_s),
            backward_s: join(self.backward_s, other.backward_s),
            either_s: join(self.either_s, other.either_s),
            saved_bytes: join(self.saved_bytes, other.saved_bytes),
        }
    }

    /// Extra seconds of a stage on a rank that runs its sections this often.
    fn seconds_of(&self, runs: PerSection) -> f64 {
        runs.f * self.forward_s + runs.i * self.backward_s + runs.f.min(runs.i) * self.either_s
    }
}

impl Add for OptionCost {
    type Output = OptionCost;

    fn add(self, other: OptionCost) -> OptionCost {
        self.zip(other, |a, b| a + b)
    }
}

impl Mul<OptionCost> for f64 {
    type Output = OptionCost;

    fn mul(self, cost: OptionCost) -> OptionCost {
        cost.zip(cost, |figure, _| self * figure)
    }
}

impl Sum for OptionCost {
    fn sum<I: Iterator<Item = OptionCost>>(all: I) -> OptionCost {
        all.fold(OptionCost::default(), Add::add)
    }
}

/// Saved values of a block to recompute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saving {
    pub(super) block: usize,
    /// Reduction per block instance.
    pub(super) each: Reduction,
}

impl Saving {
    /// The same of an instance that holds its activations this often.
    pub(super) fn held(&self, times: f64) -> Saving {
        Saving { each: Reduction { bytes: times * self.each.bytes, ..self.each }, ..*self }
    }
}

/// Reduction of saved activations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reduction {
    /// Bytes that are no longer saved.
    pub(super) bytes: f64,
    /// Seconds of recomputing them.
    pub(super) seconds: f64,
}

/// Options of block instances that save their activations in one place.
#[derive(Debug)]
struct PlaceOptions {
    /// Cost of an instance of each block that recomputes nothing.
    none: Vec<OptionCost>,
    /// Cost of an instance of each block that is recomputed as a whole.
    whole: Vec<OptionCost>,
    /// `true` if recomputed layers take no less in either pass, and save no more.
    ascends: bool,
}

/// Options of a model's block instances to save less.
#[derive(Debug)]
pub(super) struct RecomputeOptions {
    /// Recomputed values, fewest seconds per byte first: a lower bound on all choices of values.
    savings: Vec<Saving>,
    /// The same for each kind of layer.
    kinds: Vec<Vec<Saving>>,
    /// Lower bound on an instance of each block with offloading: no choice of values takes less in either pass or in both.
    offloaded: Vec<OptionCost>,
    on_device: PlaceOptions,
    on_host: PlaceOptions,
    /// All ways to save less, of each block instance by itself: recomputed values, recomputed layers, and offloading with or
    /// without these; fewest seconds per byte first.
    any: Vec<Saving>,
    /// The same without offloading.
    pub(super) recomputed: Vec<Saving>,
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
        let whole = whole.recomputed.as_ref().unwrap_or(&whole.profiles);
        let cost = |profile: &Profile, all: &Profile, offload: bool| {
            let (passes, before) = (profile.passes(), all.passes());
            let wait = if offload && waits { waits_for_host(profile, platform) } else { Passes::default() };
            OptionCost {
                forward_s: passes.forward - before.forward + wait.forward,
                backward_s: passes.backward - before.backward + wait.backward,
                either_s: 0.0,
                saved_bytes: if offload { 0.0 } else { profile.saved },
            }
        };
        let in_place = |offload: bool| {
            let costs = |profiles: &[Profile]| -> Vec<OptionCost> {
                profiles.iter().zip(&all.profiles).map(|(profile, all)| cost(profile, all, offload)).collect()
            };
            let (none, whole) = (costs(&all.profiles), costs(whole));
            let is_more = |(whole, none): (&OptionCost, &OptionCost)| {
                whole.forward_s >= none.forward_s
                    && whole.backward_s >= none.backward_s
                    && whole.saved_bytes <= none.saved_bytes
            };
            let ascends = whole.iter().zip(&none).all(is_more);
            PlaceOptions { none, whole, ascends }
        };
        let (on_device, on_host) = (in_place(false), in_place(true));
        let least_offloaded = |(block, choices): (usize, &Vec<RecomputeChoice>)| {
            let none = on_host.none[block];
            let costs = choices.iter().map(|choice| {
                let cost = RecomputeCost { bytes: choice.bytes, seconds: choice.least };
                if waits { offloaded(&all.profiles[block], cost, platform) } else { OptionCost::default() }
            });
            let both_s = |cost: &OptionCost| cost.forward_s + cost.backward_s;
            let (each, sum) = costs.fold((none, none), |(each, sum), cost| {
                (each.zip(cost, f64::min), if both_s(&cost) < both_s(&sum) { cost } else { sum })
            });
            OptionCost { either_s: both_s(&sum) - each.forward_s - each.backward_s, ..each }
        };
        let offloaded: Vec<OptionCost> = choices.iter().enumerate().map(least_offloaded).collect();
        let point = |bytes: f64, seconds: f64| RecomputeCost { bytes, seconds: seconds.max(0.0) };
        let here = |block: usize| {
            let whole = &on_device.whole[block];
            let parts = choices[block].iter().map(|choice| point(choice.bytes, choice.least));
            parts.chain([point(whole.saved_bytes, whole.seconds())])
        };
        let away = |block: usize| {
            let away = [on_host.whole[block], offloaded[block], on_host.none[block]];
            away.map(|cost| point(0.0, cost.seconds()))
        };
        let hull_of = |block: usize, points| hull(block, all.profiles[block].saved, points);
        let blocks = 0..all.profiles.len();
        let recomputed = blocks.clone().flat_map(|block| hull_of(block, here(block).collect())).collect();
        let any = blocks.flat_map(|block| hull_of(block, here(block).chain(away(block)).collect())).collect();
        let (recomputed, any) = (cheapest_first(recomputed), cheapest_first(any));
        let kinds = choices.iter().enumerate().map(|(block, choices)| savings(block, all, choices));
        let kinds: Vec<Vec<Saving>> = kinds.filter(|savings| !savings.is_empty()).collect();
        let savings = cheapest_first(kinds.concat());
        RecomputeOptions { savings, kinds, offloaded, on_device, on_host, any, recomputed }
    }

    /// Options of instances that offload their saved activations, or of those that do not.
    fn in_place(&self, offload: bool) -> &PlaceOptions {
        if offload { &self.on_host } else { &self.on_device }
    }

    /// Bytes that a stage saves less after all savings of all kinds of layers except `kind`.
    fn all_but(&self, kind: usize, runs: &[Count]) -> f64 {
        let others = self.kinds.iter().enumerate().filter(|(other, _)| *other != kind);
        others.map(|(_, savings)| after(savings, runs, savings.len() as f64).bytes).sum()
    }
}

/// Everything that a stage holds of a micro-batch, in bytes, if some of its savings are taken.
struct Held {
    /// Bytes without savings.
    before: f64,
    reductions: Reductions,
}

/// Reduction of a stage's saved activations per micro-batch, after each of some savings.
struct Reductions(Vec<Reduction>);

impl Reductions {
    fn of(savings: &[Saving], runs: &[Count]) -> Reductions {
        let mut sum = Reduction::default();
        let after = |Saving { block, each }: &Saving| {
            let times = runs.iter().filter(|run| run.block == *block).map(|run| run.times).sum::<f64>();
            sum = Reduction { bytes: sum.bytes + times * each.bytes, seconds: sum.seconds + times * each.seconds };
            sum
        };
        Reductions([Reduction::default()].into_iter().chain(savings.iter().map(after)).collect())
    }

    /// Reduction after `share` savings, the last one taken in part.
    fn after(&self, share: f64) -> Reduction {
        let (whole, part) = (share as usize, share.fract());
        let before = self.0[whole];
        let next = self.0.get(whole + 1).unwrap_or(&before);
        let at = |before: f64, next: f64| before + part * (next - before);
        Reduction { bytes: at(before.bytes, next.bytes), seconds: at(before.seconds, next.seconds) }
    }
}

/// The same after the first `share` of `savings`.
fn after(savings: &[Saving], runs: &[Count], share: f64) -> Reduction {
    Reductions::of(savings, runs).after(share)
}

/// Savings in the order of their seconds per byte.
pub(super) fn cheapest_first(mut savings: Vec<Saving>) -> Vec<Saving> {
    savings.sort_by(|a, b| (a.each.seconds / a.each.bytes).total_cmp(&(b.each.seconds / b.each.bytes)));
    savings
}

/// Lower hull of a block's choices, starting from saving everything.
fn savings(block: usize, all: &Blocks, choices: &[RecomputeChoice]) -> Vec<Saving> {
    let points = choices.iter().map(|choice| RecomputeCost { bytes: choice.bytes, seconds: choice.least });
    lower_hull(block, all.profiles[block].saved, points)
}

/// Lower hull of any points, those that take no less and save no more than another left out.
fn hull(block: usize, everything: f64, mut points: Vec<RecomputeCost>) -> Vec<Saving> {
    points.sort_by(|a, b| a.bytes.total_cmp(&b.bytes).then(a.seconds.total_cmp(&b.seconds)));
    let mut least = f64::INFINITY;
    points.retain(|point| {
        let is_less = point.seconds < least;
        least = least.min(point.seconds);
        is_less
    });
    lower_hull(block, everything, points.into_iter().rev())
}

/// Lower hull of points that save less and less, starting from saving `everything`.
fn lower_hull(block: usize, everything: f64, points: impl Iterator<Item = RecomputeCost>) -> Vec<Saving> {
    let mut hull = vec![RecomputeCost { bytes: everything, seconds: 0.0 }];
    for next in points.filter(|point| point.bytes < everything) {
        let slope = |from: &RecomputeCost, to: &RecomputeCost| (to.seconds - from.seconds) / (from.bytes - to.bytes);
        while hull.len() > 1
            && slope(&hull[hull.len() - 2], &next) <= slope(&hull[hull.len() - 2], &hull[hull.len() - 1])
        {
            hull.pop();
        }
        hull.push(next);
    }
    let reduction = |from: RecomputeCost, to: RecomputeCost| Reduction {
        bytes: from.bytes - to.bytes,
        seconds: to.seconds - from.seconds,
    };
    hull.windows(2).map(|pair| Saving { block, each: reduction(pair[0], pair[1]) }).collect()
}

/// Cost of a block instance that recomputes some values and offloads the rest, `choice.bytes`, to host memory.
pub(super) fn offloaded(all: &Profile, choice: RecomputeCost, platform: &Platform<'_>) -> OptionCost {
    let passes = all.passes();
    let copy = choice.bytes / platform.cluster.host_bandwidth();
    OptionCost {
        forward_s: (copy - passes.forward).max(0.0),
        backward_s: choice.seconds.max(copy - passes.backward),
        ..OptionCost::default()
    }
}

/// Seconds that the passes of a block instance wait for copies of its saved activations: to the host, and back.
fn waits_for_host(profile: &Profile, platform: &Platform<'_>) -> Passes {
    let copy = profile.saved / platform.cluster.host_bandwidth();
    profile.passes().map(|compute| (copy - compute).max(0.0))
}

/// A pipeline whose stages save everything, queried for its time if the stages save less.
pub(super) struct MemoryFit<'a> {
    pub(super) schedule: &'a ScheduledPipeline,
    /// Kinds of stages.
    pub(super) kinds: &'a StageKinds,
    /// Bytes that an instance of each block saves.
    pub(super) saved: &'a [f64],
    /// Ranks by number.
    pub(super) ranks: Vec<FitRank<'a>>,
    /// Critical path of an order that does not depend on costs.
    pub(super) path: Option<KnownPath<'a>>,
    /// Lower bounds on how long activations stay saved.
    pub(super) lifetime: ActivationLifetime,
    /// Bytes the allocator reserves for each byte.
    pub(super) reserve: f64,
}

/// A rank whose stages save everything.
pub(super) struct FitRank<'a> {
    pub(super) number: u32,
    /// Lower bound over all orders.
    pub(super) bound: &'a RankBound,
    /// Seconds of the reduction of its gradients after its last backward.
    pub(super) reduce_s: f64,
    /// Lower bound on the bytes of its device.
    pub(super) device_bytes: f64,
    /// The part of `device_bytes` that forwards save.
    pub(super) saved_bytes: f64,
}

/// Critical path of an order.
#[derive(Clone, Copy)]
pub(super) struct KnownPath<'a> {
    pub(super) path: &'a CriticalPath,
    /// Seconds of the path.
    pub(super) seconds: f64,
}

impl MemoryFit<'_> {
    /// Lower bound on the seconds until all gradients are reduced, over those options with which every device fits in a budget
    /// of `budget` bytes; infinite if there are none.
    pub(super) fn seconds(&self, options: &RecomputeOptions, choices: &MemoryChoices, budget: f64) -> f64 {
        let least = |offload: &Offload| {
            let offload = match offload {
                Offload::All(Some(_)) | Offload::Auto => return self.in_part(options, budget),
                offload => !offload.is_none(),
            };
            let selective = match (choices.selective, offload) {
                (false, _) => f64::INFINITY,
                (true, true) => self.under(|runs| sum_of(runs, &options.offloaded), budget).unwrap_or(f64::INFINITY),
                (true, false) => self.by_values(options, budget),
            };
            let in_place = options.in_place(offload);
            let full = |most: &u32| self.under(|runs| whole_layers(runs, in_place, *most), budget);
            let mut numbers = &choices.full[..];
            if in_place.ascends {
                // The fewest layers that fit take least time.
                let fewest = numbers.partition_point(|most| full(most).is_none());
                numbers = &numbers[fewest..numbers.len().min(fewest + 1)];
            }
            numbers.iter().filter_map(full).fold(selective, f64::min)
        };
        choices.offload.iter().map(least).fold(f64::INFINITY, f64::min)
    }

    /// Lower bound on the seconds until all gradients are reduced, if some layers are offloaded: each instance saves less in the way
    /// that takes least for its bytes. Ranks with several stages may choose in each, so that they only have to fit.
    fn in_part(&self, options: &RecomputeOptions, budget: f64) -> f64 {
        let held = self.held(&options.any, |_| 0.0);
        let mut end = 0.0_f64;
        for rank in &self.ranks {
            let Some(share) = self.share(rank, &held, options.any.len(), budget) else { return f64::INFINITY };
            let share = if rank.bound.stages.len() > 1 { 0.0 } else { share };
            let longer = rank.bound.longer(|at| held.at(at).reductions.after(share).seconds);
            end = end.max(self.reduced(rank) + longer);
        }
        end
    }

    /// Lower bound on the seconds until all gradients are reduced, if values are recomputed. Each rank recomputes as few as
    /// it must. All layers of one kind recompute the same values: those the neediest rank must recompute even if all other
    /// kinds recompute everything.
    fn by_values(&self, options: &RecomputeOptions, budget: f64) -> f64 {
        let held = self.held(&options.savings, |_| 0.0);
        let (mut end, mut most) = (0.0_f64, vec![0.0_f64; options.kinds.len()]);
        for rank in &self.ranks {
            let Some(together) = self.share(rank, &held, options.savings.len(), budget) else { return f64::INFINITY };
            let longer = rank.bound.longer(|at| held.at(at).reductions.after(together).seconds);
            end = end.max(self.reduced(rank) + longer);
            // A rank that needs no savings needs none of any kind.
            for (kind, most) in most.iter_mut().enumerate().filter(|_| together > 0.0) {
                let alone = || self.share_alone(rank, options, kind, budget);
                *most = most.max(if options.kinds.len() > 1 { alone() } else { together });
            }
        }
        let of_kind = |runs: &[Count]| -> f64 {
            options.kinds.iter().zip(&most).map(|(savings, most)| after(savings, runs, *most).seconds).sum()
        };
        let stages = self.kinds.each(of_kind);
        let all = self.ranks.iter().map(|rank| self.reduced(rank) + rank.bound.longer(|at| *stages.at(at)));
        let longer = |(runs, stage): (&PerSection, &f64)| runs.i * stage;
        let along = |path: &CriticalPath| path.runs.iter().zip(stages.iter()).map(longer).sum::<f64>();
        let chain =
            self.path.map_or(0.0, |KnownPath { path, seconds }| seconds + along(path) + self.ranks[path.rank].reduce_s);
        all.fold(end, f64::max).max(chain)
    }

    /// Number of savings of a kind of layers that a rank needs even if all other kinds recompute everything.
    fn share_alone(&self, rank: &FitRank<'_>, options: &RecomputeOptions, kind: usize, budget: f64) -> f64 {
        let held = self.held(&options.kinds[kind], |runs| options.all_but(kind, runs));
        self.share(rank, &held, options.kinds[kind].len(), budget).unwrap_or(0.0)
    }

    /// The bytes that stages hold with some savings, in addition to the `rest` that they already save.
    fn held(&self, savings: &[Saving], rest: impl Fn(&[Count]) -> f64) -> ByStage<'_, Held> {
        self.kinds.each(|runs| {
            let saved = sum(runs, |run| self.saved[run.block]);
            Held { before: saved - rest(runs), reductions: Reductions::of(savings, runs) }
        })
    }

    /// Number of savings, of `all` and the last one in part, with which a device fits in a budget of `budget` bytes. Returns `None` if
    /// all of them are too few.
    fn share(&self, rank: &FitRank<'_>, held: &ByStage<'_, Held>, all: usize, budget: f64) -> Option<f64> {
        let free = (rank.device_bytes * (1.0 - ROUNDING) - budget) / self.reserve;
        let most = rank.saved_bytes - free;
        let is_enough = |share: f64| {
            let saved = held.map(|held| held.before - held.reductions.after(share).bytes);
            let saved = |at: usize| *saved.at(at);
            rank.bound.least_saved(rank.number, &saved, self.schedule, &self.lifetime, 0.0) <= most
        };
        if is_enough(0.0) {
            return Some(0.0);
        }
        if !is_enough(all as f64) {
            return None;
        }
        let (mut low, mut high) = (0, all);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if is_enough(middle as f64) { high = middle } else { low = middle }
        }
        let (mut low, mut high) = (low as f64, high as f64);
        for _ in 0..HALVINGS {
            let middle = (low + high) / 2.0;
            if is_enough(middle) { high = middle } else { low = middle }
        }
        Some(low)
    }

    /// Earliest time at which the gradients are reduced, by the bound of this rank.
    fn reduced(&self, rank: &FitRank<'_>) -> f64 {
        rank.bound.summed(rank.reduce_s, self.ranks[0].reduce_s)
    }

    /// Lower bound on the seconds until all gradients are reduced, if stages take the extra seconds and save the bytes that
    /// `stage` returns. Returns `None` if some device exceeds its budget.
    fn under(&self, stage: impl Fn(&[Count]) -> OptionCost, budget: f64) -> Option<f64> {
        let stages = self.kinds.each(stage);
        let saved = |at: usize| stages.at(at).saved_bytes;
        // A pass that takes less time shortens the path through other stages.
        let shorter = stages.iter().map(|stage| stage.forward_s.min(0.0) + stage.backward_s.min(0.0)).sum::<f64>();
        let mut end = 0.0_f64;
        for rank in &self.ranks {
            let saved = rank.bound.least_saved(rank.number, &saved, self.schedule, &self.lifetime, shorter);
            if (rank.device_bytes - self.reserve * (rank.saved_bytes - saved)) * (1.0 - ROUNDING) > budget {
                return None;
            }
            let longer = rank.bound.stages.iter().map(|own| stages.at(own.stage).seconds_of(own.runs)).sum::<f64>();
            end = end.max(self.reduced(rank) + longer);
        }
        let end = end + shorter;
        let along = |path: &CriticalPath| {
            path.runs.iter().zip(stages.iter()).map(|(&runs, stage)| stage.seconds_of(runs)).sum::<f64>()
        };
        Some(
            self.path.map_or(end, |KnownPath { path, seconds }| {
                end.max(seconds + along(path) + self.ranks[path.rank].reduce_s)
            }),
        )
    }
}

/// Number of bisection steps for the part of a saving that is needed.
const HALVINGS: usize = 8;

/// Relative tolerance for sums in another order.
pub(super) const ROUNDING: f64 = 1e-9;

/// Sum over all block instances of a stage.
pub(super) fn sum(runs: &[Count], each: impl Fn(&Count) -> f64) -> f64 {
    runs.iter().map(|run| run.times * each(run)).sum()
}

/// Cost of a stage whose block instances use these options.
fn sum_of(runs: &[Count], costs: &[OptionCost]) -> OptionCost {
    runs.iter().map(|run| run.times * costs[run.block]).sum()
}

/// Lower bound on a stage that recomputes up to `most` of its layers: those that save as much and cost as little as any.
fn whole_layers(runs: &[Count], options: &PlaceOptions, most: u32) -> OptionCost {
    let layers = || runs.iter().filter(|run| run.are_layers);
    let recomputed = layers().map(|run| run.times).sum::<f64>().min(f64::from(most));
    let stage = sum_of(runs, &options.none);
    if recomputed > 0.0 {
        let changes =
            layers().map(|run| options.whole[run.block].zip(options.none[run.block], |whole, none| whole - none));
        let least = changes.fold(OptionCost::uniform(f64::INFINITY), |least, change| least.zip(change, f64::min));
        stage + recomputed * least
    } else {
        stage
    }
}
