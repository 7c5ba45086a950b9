//! Exhaustive search over all orders of a small pipeline. Tests compare bounds and limits with its optimum.

use crate::costs::StageCosts;
use crate::placement::Pipeline;
use std::collections::HashMap;

/// Quantity that the search minimises.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Objective {
    Makespan,
    Span,
}

/// All F, I (or B) or W of a stage in one direction. The units of a stream start in order.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Stream {
    kind: usize,
    stage: usize,
    rank: usize,
    up: bool,
    units: usize,
}

const F: usize = 0;
const I: usize = 1;
const W: usize = 2;

struct Search<'a> {
    costs: &'a StageCosts,
    fused: bool,
    objective: Objective,
    streams: Vec<Stream>,
    best: f64,
    /// Non-dominated times of the states that reached each set of finished units.
    seen: HashMap<Vec<bool>, Vec<Vec<f64>>>,
}

#[derive(Clone)]
struct State {
    /// End of each unit of each stream; infinity for units that have not run.
    ends: Vec<Vec<f64>>,
    free: Vec<f64>,
    first: Vec<f64>,
    held: Vec<f64>,
}

/// Returns the least makespan or span of any order within the limits, or `None` if no order exists.
pub(crate) fn best(costs: &StageCosts, pipeline: &Pipeline, fused: bool, objective: Objective) -> Option<f64> {
    assert_eq!(pipeline.slices, 1);
    let mut streams = Vec::new();
    for (up, mb) in [(false, 0), (true, pipeline.microbatches - 1)] {
        let units = (0..pipeline.microbatches).filter(|&m| pipeline.goes_up(m) == up).count();
        for stage in 0..if units > 0 { pipeline.stages() as usize } else { 0 } {
            let rank = pipeline.rank(stage as u32, mb) as usize;
            streams.extend((0..if fused { 2 } else { 3 }).map(|kind| Stream { kind, stage, rank, up, units }));
        }
    }
    let ranks = pipeline.ranks as usize;
    let state = State {
        ends: streams.iter().map(|s| vec![f64::INFINITY; s.units]).collect(),
        free: vec![0.0; ranks],
        first: vec![f64::INFINITY; ranks],
        held: vec![0.0; ranks],
    };
    let mut search = Search { costs, fused, objective, streams, best: f64::INFINITY, seen: HashMap::new() };
    search.go(state);
    Some(search.best).filter(|best| best.is_finite())
}

impl Search<'_> {
    fn find(&self, kind: usize, stage: usize, up: bool) -> Option<usize> {
        self.streams.iter().position(|s| (s.kind, s.stage, s.up) == (kind, stage, up))
    }

    fn seconds(&self, s: Stream) -> f64 {
        let c = self.costs;
        match s.kind {
            F => c.f[s.stage],
            I if self.fused => c.i[s.stage] + c.w[s.stage],
            I => c.i[s.stage],
            _ => c.w[s.stage],
        }
    }

    /// Returns the next unit of a stream and the arrival time of its inputs. Returns `None` if an input has not been computed,
    /// or all units have run.
    fn next(&self, state: &State, at: usize) -> Option<(usize, f64)> {
        let s = self.streams[at];
        let unit = state.ends[at].iter().position(|end| end.is_infinite())?;
        let from = |kind, stage| {
            let other = self.find(kind, stage, s.up).unwrap();
            let hop = if self.streams[other].rank == s.rank { 0.0 } else { self.costs.comm[stage.min(s.stage)] };
            state.ends[other][unit] + hop
        };
        let arrival = match s.kind {
            F if s.stage == 0 => 0.0,
            F => from(F, s.stage - 1),
            I if s.stage + 1 == self.costs.f.len() => from(F, s.stage),
            I => from(F, s.stage).max(from(I, s.stage + 1)),
            _ => from(I, s.stage),
        };
        arrival.is_finite().then_some((unit, arrival))
    }

    fn go(&mut self, state: State) {
        let value = self.value(&state);
        if value.max(self.at_least(&state)) >= self.best || !self.fresh(&state) {
            return;
        }
        if state.ends.iter().flatten().all(|end| end.is_finite()) {
            self.best = value;
            return;
        }
        let open: Vec<(usize, f64)> =
            (0..self.streams.len()).filter_map(|at| Some((at, self.next(&state, at)?.1))).collect();
        for &(at, arrival) in &open {
            self.step(&state, &[at], arrival, self.seconds(self.streams[at]));
        }
        let Some(fb) = self.costs.fb else { return };
        for &(a, early) in &open {
            for &(b, late) in &open {
                let (x, y) = (self.streams[a], self.streams[b]);
                if x.kind == F && y.kind == I && x.rank == y.rank {
                    self.step(&state, &[a, b], early.max(late), fb);
                }
            }
        }
    }

    /// Runs the next unit of a stream, or an overlapped F and B.
    fn step(&mut self, state: &State, run: &[usize], arrival: f64, seconds: f64) {
        let rank = self.streams[run[0]].rank;
        let start = arrival.max(state.free[rank]);
        let mut next = state.clone();
        next.first[rank] = next.first[rank].min(start);
        next.free[rank] = start + seconds;
        for &at in run.iter().filter(|&&at| self.streams[at].kind == F) {
            next.held[rank] += self.costs.mem_f[self.streams[at].stage];
        }
        if self.costs.limit.as_ref().is_some_and(|limit| next.held[rank] > limit[rank] * (1.0 + 1e-9)) {
            return;
        }
        for &at in run {
            let s = self.streams[at];
            let (unit, _) = self.next(state, at).unwrap();
            next.ends[at][unit] = start + seconds;
            let (i, w) = (self.costs.mem_i[s.stage], self.costs.mem_w[s.stage]);
            let whole = self.fused || run.len() == 2;
            next.held[rank] -= match s.kind {
                F => 0.0,
                I if whole => i + w,
                I => i,
                _ => w,
            };
            if s.kind == I && whole && !self.fused {
                let weights = self.find(W, s.stage, s.up).unwrap();
                next.ends[weights][unit] = start + seconds;
            }
        }
        self.go(next);
    }

    /// Returns a lower bound on the objective: each rank runs its remaining work without gaps. (Pairs may take less.)
    fn at_least(&self, state: &State) -> f64 {
        let left = |rank: usize| {
            let of_rank = self.streams.iter().zip(&state.ends).filter(|(s, _)| s.rank == rank);
            let left =
                of_rank.map(|(s, ends)| ends.iter().filter(|end| end.is_infinite()).count() as f64 * self.seconds(*s));
            let since = if self.objective == Objective::Span { state.first[rank].min(state.free[rank]) } else { 0.0 };
            state.free[rank] - since + left.sum::<f64>()
        };
        if self.costs.fb.is_some() { 0.0 } else { (0..state.free.len()).map(left).fold(0.0, f64::max) }
    }

    fn value(&self, state: &State) -> f64 {
        let spans = state.free.iter().zip(&state.first).map(|(end, first)| (end, first.min(*end)));
        match self.objective {
            Objective::Makespan => spans.map(|(end, _)| *end).fold(0.0, f64::max),
            Objective::Span => spans.map(|(end, first)| end - first).fold(0.0, f64::max),
        }
    }

    /// Records a state, and returns whether no earlier state with the same counts dominates it.
    fn fresh(&mut self, state: &State) -> bool {
        let ends = || state.ends.iter().flatten();
        let run = ends().map(|end| end.is_finite()).collect();
        let ended = ends().filter(|end| end.is_finite());
        let mut times: Vec<f64> = state.free.iter().chain(ended).chain(&state.held).copied().collect();
        if self.objective == Objective::Span {
            times.extend(state.first.iter().map(|first| if first.is_finite() { -first } else { 0.0 }));
        }
        let known = self.seen.entry(run).or_default();
        if known.iter().any(|old| old.iter().zip(&times).all(|(old, new)| old <= new)) {
            return false;
        }
        known.retain(|old| !old.iter().zip(&times).all(|(old, new)| new <= old));
        known.push(times);
        true
    }
}
