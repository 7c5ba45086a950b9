//! What it costs at least to fit: layers that compute again what they could keep, or have it wait in the host's memory.

use super::blocks::Blocks;
use super::path::Path;
use super::pipeline::{Least, least_kept};
use super::stages::{Count, counts};
use cost::{Machine, Profile};
use scheduler::placement::Pipeline;
use scheduler::schedules::ScheduleKind;
use std::sync::Arc;

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

/// A run of a block: seconds beyond those where it keeps all on the device, and bytes that it keeps there.
type Run = [f64; 2];

/// The ways in which the runs of a model can keep less; each says what a run of each block is.
#[derive(Debug)]
pub(super) struct Ways {
    /// By what of a layer is computed again, kept on the device, and with the host; without those that keep as much as
    /// another and take as long.
    parts: [Vec<Vec<Run>>; 2],
    /// Whole layers.
    whole: [Vec<Run>; 2],
    /// With nothing computed again.
    none: [Vec<Run>; 2],
}

impl Ways {
    /// Those of blocks that keep all, by what they are where parts of layers are computed again, and whole ones. `waits`:
    /// whether what a run waits for the host follows from its profile, as it does but where attention sees documents.
    pub(super) fn of(all: &Blocks, parts: &[Arc<Blocks>], whole: &Blocks, machine: &Machine<'_>, waits: bool) -> Ways {
        let way = |profiles: &[Profile], is_hosted: bool| -> Vec<Run> {
            let of = |(profile, all): (&Profile, &Profile)| {
                let more = total(profile) - total(all);
                let wait = if waits { waits_for_host(profile, machine) } else { 0.0 };
                if is_hosted { [more + wait, 0.0] } else { [more, profile.kept] }
            };
            profiles.iter().zip(&all.profiles).map(of).collect()
        };
        let again = whole.again.as_ref().unwrap_or(&whole.profiles);
        let both = [false, true];
        Ways {
            parts: both.map(|hosted| best(parts.iter().map(|blocks| way(&blocks.profiles, hosted)).collect())),
            whole: both.map(|hosted| way(again, hosted)),
            none: both.map(|hosted| way(&all.profiles, hosted)),
        }
    }
}

fn total(profile: &Profile) -> f64 {
    profile.f.total() + profile.again.total() + profile.i.total() + profile.w.total()
}

/// Seconds that a run waits for copies of what it keeps, to the host beside the forward, and back beside the backward.
fn waits_for_host(profile: &Profile, machine: &Machine<'_>) -> f64 {
    let copy = profile.kept / machine.cluster.device.host_bandwidth;
    let backward = profile.again.total() + profile.i.total() + profile.w.total();
    (copy - profile.f.total()).max(0.0) + (copy - backward).max(0.0)
}

/// Those than which no other is as good in all.
fn best(mut ways: Vec<Vec<Run>>) -> Vec<Vec<Run>> {
    let seconds = |way: &Vec<Run>| way.iter().map(|[seconds, _]| seconds).sum::<f64>();
    ways.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    let mut best: Vec<Vec<Run>> = Vec::new();
    for way in ways {
        let is_as_good = |other: &Vec<Run>| other.iter().zip(&way).all(|(a, b)| a[0] <= b[0] && a[1] <= b[1]);
        if !best.iter().any(is_as_good) {
            best.push(way);
        }
    }
    best
}

/// A pipeline whose stages keep all, to be asked what it takes if they keep less.
pub(super) struct Fitting<'a> {
    kind: &'a ScheduleKind,
    pipeline: &'a Pipeline,
    /// The runs of each stage.
    counts: Vec<Vec<Count>>,
    /// What no order beats.
    ranks: Vec<Least>,
    /// What the end follows from in an order that no cost moves, and its seconds.
    path: Option<(&'a Path, f64)>,
    /// Bytes of each rank's device, and of what its forwards keep there.
    device: Vec<[f64; 2]>,
    reserve: f64,
}

impl<'a> Fitting<'a> {
    /// Stages that begin so, with what their ranks take and the bytes of their devices at least.
    pub(super) fn new(
        blocks: &Blocks,
        starts: &[usize],
        (kind, pipeline): (&'a ScheduleKind, &'a Pipeline),
        ranks: Vec<Least>,
        path: Option<(&'a Path, f64)>,
        device: &[f64],
        machine: &Machine<'_>,
    ) -> Fitting<'a> {
        let counts = counts(blocks, starts);
        let kept: Vec<f64> = counts.iter().map(|runs| sum(runs, |run| blocks.profiles[run.block].kept)).collect();
        let of_rank = |(rank, least): (u32, &Least)| least_kept(rank, &least.stages, &kept, kind, pipeline);
        let device = (0..).zip(&ranks).map(of_rank).zip(device).map(|(kept, device)| [*device, kept]).collect();
        Fitting { kind, pipeline, counts, ranks, path, device, reserve: machine.stack.facts.reserve }
    }

    /// Seconds until the last backward at least, by those means with which every device has `room` bytes or more; infinite
    /// where there are none.
    pub(super) fn seconds(&self, ways: &Ways, means: &Means, room: f64) -> f64 {
        let of_host = |&hosted: &bool| {
            let at = usize::from(hosted);
            let parts = if means.parts { ways.parts[at].as_slice() } else { &[] };
            let by_parts = parts.iter().filter_map(|way| self.under(|runs| sum_of(runs, way), room));
            let whole = |most: &u32| self.under(|runs| whole_layers(runs, ways, hosted, *most), room);
            let by_whole = means.whole.iter().filter_map(whole);
            by_parts.chain(by_whole).fold(f64::INFINITY, f64::min)
        };
        means.hosts.iter().map(of_host).fold(f64::INFINITY, f64::min)
    }

    /// Seconds until the last backward at least, if stages take so many seconds more for a micro-batch and keep so many bytes,
    /// and every device has room.
    fn under(&self, stage: impl Fn(&[Count]) -> Run, room: f64) -> Option<f64> {
        let stages: Vec<Run> = self.counts.iter().map(|runs| stage(runs)).collect();
        let kept: Vec<f64> = stages.iter().map(|[_, kept]| *kept).collect();
        let mut end = 0.0_f64;
        for ((rank, least), [device, before]) in (0..).zip(&self.ranks).zip(&self.device) {
            let kept = least_kept(rank, &least.stages, &kept, self.kind, self.pipeline);
            if (device - self.reserve * (before - kept)) * (1.0 - ROUNDING) > room {
                return None;
            }
            let more = least.stages.iter().map(|(stage, runs)| runs[1] * stages[*stage][0]);
            end = end.max(least.end() + more.sum::<f64>());
        }
        // What takes less time makes the way through other stages shorter.
        let end = end + stages.iter().map(|[more, _]| more.min(0.0)).sum::<f64>();
        let more = |path: &Path| path.runs.iter().zip(&stages).map(|(runs, [more, _])| runs[1] * more).sum::<f64>();
        Some(self.path.map_or(end, |(path, seconds)| end.max(seconds + more(path))))
    }
}

/// Sums in another order count as this much less.
const ROUNDING: f64 = 1e-9;

fn sum(runs: &[Count], of: impl Fn(&Count) -> f64) -> f64 {
    runs.iter().map(|run| run.times * of(run)).sum()
}

/// A stage whose runs are all as a way has them.
fn sum_of(runs: &[Count], way: &[Run]) -> Run {
    [sum(runs, |run| way[run.block][0]), sum(runs, |run| way[run.block][1])]
}

/// A stage of whose layers so many are computed again, if it has as many: they save as much as any can, and cost as little.
fn whole_layers(runs: &[Count], ways: &Ways, hosted: bool, most: u32) -> Run {
    let (none, whole) = (&ways.none[usize::from(hosted)], &ways.whole[usize::from(hosted)]);
    let layers = || runs.iter().filter(|run| run.are_layers);
    let again = layers().map(|run| run.times).sum::<f64>().min(f64::from(most));
    let least =
        |at: usize| layers().map(|run| whole[run.block][at] - none[run.block][at]).fold(f64::INFINITY, f64::min);
    let [seconds, bytes] = sum_of(runs, none);
    if again > 0.0 { [seconds + again * least(0), bytes + again * least(1)] } else { [seconds, bytes] }
}
