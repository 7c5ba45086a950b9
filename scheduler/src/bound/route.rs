//! Route of a micro-batch through the stages and back, and the bounds on the times of its steps.

use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::Kind;
use std::ops::Range;

/// Steps of each micro-batch of one direction: F of every stage in order, then I of every stage in reverse.
pub(super) struct CriticalRoute {
    pub(super) steps: Vec<RouteStep>,
    /// Number of micro-batches, or slices of micro-batches, on this route.
    pub(super) units: u32,
    /// Steps of each rank, ascending.
    by_rank: Vec<Vec<usize>>,
}

/// A step of the route.
#[derive(Clone, Copy)]
pub(super) struct RouteStep {
    /// Earliest start, in seconds.
    start: f64,
    /// Earliest end, in seconds.
    end: f64,
    /// Seconds of work on the step's rank.
    pub(super) share: f64,
    /// The W that follows an I.
    pub(super) weights: Option<Weights>,
}

/// The W of a step.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    /// Seconds of work on the rank of the W.
    pub(super) share: f64,
    /// True if the W may run in one action with its I, in an overlapped pair.
    pub(super) in_pair: bool,
}

/// Seconds of an overlapped pair that count for its F and for its B.
#[derive(Clone, Copy)]
pub(super) struct PairShares {
    f: f64,
    b: f64,
}

impl PairShares {
    /// Splits the seconds of a pair so that the actions of the rank have the most work.
    pub(super) fn of(costs: &StageCosts, pipeline: &Pipeline, rank: u32) -> PairShares {
        let Some(fb) = costs.fb else { return PairShares { f: f64::INFINITY, b: f64::INFINITY } };
        let stages: Vec<usize> = pipeline.stages_in_both_directions(rank).collect();
        let corners = stages.iter().flat_map(|&s| [costs.f[s], fb - costs.b(s)]).map(|f| f.clamp(0.0, fb));
        let shares = corners.map(|f| PairShares { f, b: fb - f });
        let most = shares.max_by(|x, y| x.work(costs, &stages).total_cmp(&y.work(costs, &stages)));
        most.unwrap_or(PairShares { f: fb / 2.0, b: fb - fb / 2.0 })
    }

    /// Returns the seconds of one F and one B of each stage that count for the actions.
    fn work(&self, costs: &StageCosts, stages: &[usize]) -> f64 {
        stages.iter().map(|&s| costs.f[s].min(self.f) + costs.b(s).min(self.b)).sum()
    }
}

impl CriticalRoute {
    /// Builds the route of micro-batch `first` and all others of its direction. `shares` has one entry per rank.
    pub(super) fn of(
        costs: &StageCosts,
        pipeline: &Pipeline,
        fused: bool,
        shares: &[PairShares],
        first: u32,
        units: u32,
    ) -> CriticalRoute {
        let pair = costs.fb.unwrap_or(f64::INFINITY);
        let stages = costs.f.len();
        let mut route =
            CriticalRoute { steps: Vec::with_capacity(2 * stages), units, by_rank: vec![Vec::new(); shares.len()] };
        let forwards = (0..stages).map(|stage| (Kind::F, stage));
        let backwards = (0..stages).rev().map(|stage| (Kind::I, stage));
        let mut arrival = 0.0;
        let mut before = (0, pipeline.rank(0, first));
        for (kind, stage) in forwards.chain(backwards) {
            let rank = pipeline.rank(stage as u32, first);
            let of_pair = shares[rank as usize];
            let (seconds, most) = match kind {
                Kind::F => (costs.f[stage], of_pair.f),
                _ if fused => (costs.b(stage), of_pair.b),
                _ => (costs.i[stage], of_pair.b),
            };
            let share = seconds.min(most);
            let weights = (kind == Kind::I && !fused)
                .then(|| Weights { share: costs.w[stage].min(most - share), in_pair: costs.fb.is_some() });
            let (from, from_rank) = before;
            let hop = if from_rank == rank { 0.0 } else { costs.comm[from.min(stage)] };
            let start = arrival + hop;
            arrival = start + seconds.min(pair);
            before = (stage, rank);
            route.by_rank[rank as usize].push(route.steps.len());
            route.steps.push(RouteStep { start, end: arrival, share, weights });
        }
        route
    }

    /// Returns the earliest start of the F of a stage, and the earliest end of its I.
    pub(super) fn round_trip(&self, stage: usize) -> [f64; 2] {
        [self.steps[stage].start, self.steps[self.steps.len() - 1 - stage].end]
    }

    /// Returns the steps of a rank, ascending.
    pub(super) fn steps_of(&self, rank: u32) -> &[usize] {
        &self.by_rank[rank as usize]
    }

    /// Returns the full route, until no work is left.
    pub(super) fn whole(&self) -> Subroute<'_> {
        Subroute { route: self, steps: 0..self.steps.len(), whole: true }
    }

    /// Returns the part of the route from step `first` to step `last`.
    pub(super) fn between(&self, first: usize, last: usize) -> Subroute<'_> {
        Subroute { route: self, steps: first..last + 1, whole: false }
    }
}

/// A range of steps of a route, evaluated on its own.
pub(super) struct Subroute<'a> {
    route: &'a CriticalRoute,
    steps: Range<usize>,
    /// True if the W of all ranks must be over at the end, as against only those of the last step's rank.
    whole: bool,
}

impl Subroute<'_> {
    fn step(&self, at: usize) -> &RouteStep {
        &self.route.steps[at]
    }

    /// Returns the steps of each rank within a range.
    fn groups(&self, range: Range<usize>) -> impl Iterator<Item = &[usize]> {
        let inside = self.route.by_rank.iter().map(move |steps| {
            let first = steps.partition_point(|&at| at < range.start);
            let end = steps.partition_point(|&at| at < range.end);
            &steps[first..end]
        });
        inside.filter(|steps| !steps.is_empty())
    }

    /// Returns the seconds before the n-th start of a step.
    pub(super) fn before_start(&self, at: usize) -> Envelope {
        self.before(self.steps.start..at, self.step(at).start)
    }

    /// Returns the seconds before the n-th end of a step.
    pub(super) fn before_end(&self, at: usize) -> Envelope {
        self.before(self.steps.start..at + 1, self.step(at).end)
    }

    /// Returns the seconds before a time of the route. Each rank of the range adds lines for the steps from one of them on, and
    /// for one step alone.
    fn before(&self, range: Range<usize>, time: f64) -> Envelope {
        let origin = self.step(self.steps.start).start;
        let mut lines = vec![(time - origin, 0.0)];
        for group in self.groups(range) {
            let last = group[group.len() - 1];
            let mut share = 0.0;
            for &at in group.iter().rev() {
                let step = self.step(at);
                share += step.share;
                lines.push((step.start - origin + time - self.step(last).end, share));
                lines.push((step.start - origin + time - step.end, step.share));
            }
        }
        Envelope::of(lines, self.route.units)
    }

    /// Returns the seconds after the end of a step while n units of this step have not ended, including this one.
    pub(super) fn after(&self, at: usize) -> Envelope {
        let now = self.step(at).end;
        let last = self.step(self.steps.end - 1);
        let left = last.weights.filter(|weights| !weights.in_pair).map_or(0.0, |weights| weights.share);
        let finish = last.end + left;
        let mut lines = vec![(finish - now, 0.0)];
        for group in self.groups(at + 1..self.steps.end) {
            let first = self.step(group[0]).start;
            let (mut share, mut with_weights) = (0.0, 0.0);
            for step in group.iter().map(|&at| self.step(at)) {
                share += step.share;
                with_weights += step.share + step.weights.map_or(0.0, |weights| weights.share);
                lines.push((first - now + finish - step.end, share));
                lines.push((step.start - now + finish - step.end, step.share));
                if self.whole {
                    lines.push((first - now, with_weights));
                }
            }
        }
        Envelope::of(lines, self.route.units)
    }
}

/// Number of evaluations above which sorting the lines is faster than evaluating all of them.
const WORTH_SORTING: u32 = 8;

/// Seconds as the maximum of lines `base + n x slope`, where n is a number of micro-batches.
pub(super) struct Envelope(Vec<(f64, f64)>);

impl Envelope {
    /// Drops the lines that are below another line for every n, if at least [`WORTH_SORTING`] evaluations are expected.
    fn of(mut lines: Vec<(f64, f64)>, asked: u32) -> Envelope {
        if asked < WORTH_SORTING {
            return Envelope(lines);
        }
        lines.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.total_cmp(&a.0)));
        let mut highest = f64::NEG_INFINITY;
        lines.retain(|&(base, _)| {
            let kept = base > highest;
            highest = highest.max(base);
            kept
        });
        Envelope(lines)
    }

    /// Returns the seconds of n micro-batches.
    pub(super) fn at(&self, n: u32) -> f64 {
        self.0.iter().map(|&(base, slope)| base + f64::from(n) * slope).fold(0.0, f64::max)
    }
}
