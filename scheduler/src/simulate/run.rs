//! Simulation of a dependency graph under costs: times, wait reasons and memory.

use super::graph::{ActionNode, DependencyGraph, Edge, NONE};
use super::timeline::{Idle, Reason};
use crate::costs::{ActionMemory, StageCosts};
use ir::schedule::{Action, Kind};

/// Times of a graph's actions under given costs.
#[derive(Debug)]
pub struct Simulation<'a> {
    graph: &'a DependencyGraph,
    times: Vec<Times>,
    /// End of the last action of each rank.
    pub ends: Vec<f64>,
    /// Peak memory of each rank, in the unit of the costs.
    pub peak_memory: Vec<f64>,
    /// Peak memory of each rank while a forward or input gradient of the last stage runs; 0 on ranks without it.
    pub peak_at_end: Vec<f64>,
}

/// Start and end of an action, and its wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) start: f64,
    pub(super) end: f64,
    /// The action that it starts after: the last input if it waited, else the previous action of the row. [`NONE`] if it is the
    /// first.
    pub(super) after: u32,
    /// Reason of the idle gap before it; `None` without a gap.
    pub(super) reason: Option<Reason>,
}

impl DependencyGraph {
    /// Simulates the actions under the costs of the graph's stages.
    pub fn run(&self, costs: &StageCosts) -> Simulation<'_> {
        let hops = self.hops(costs);
        let (mut times, ends) = self.times(costs, &hops);
        let memory: Vec<ActionMemory> = self.sorts.iter().map(|sort| costs.memory(sort)).collect();
        if let Some(limits) = &costs.limit {
            self.blame_memory(&mut times, &hops, &memory, limits);
        }
        let peak_memory = self.peak_memory(&memory, |_| true);
        let peak_at_end = self.peak_memory(&memory, |sort| self.is_of_end(sort));
        Simulation { graph: self, times, ends, peak_memory, peak_at_end }
    }

    /// Returns the seconds of each [`Edge::hop`].
    fn hops(&self, costs: &StageCosts) -> Vec<f64> {
        let hops = (0..self.stages).map(|hop| costs.comm.get(hop).copied().unwrap_or(0.0));
        std::iter::once(0.0).chain(hops).collect()
    }

    /// Returns the times of each action, and the end of each rank.
    fn times(&self, costs: &StageCosts, hops: &[f64]) -> (Vec<Times>, Vec<f64>) {
        let seconds: Vec<f64> = self.sorts.iter().map(|sort| costs.seconds(sort)).collect();
        let mut times: Vec<Times> = Vec::with_capacity(self.actions.len());
        let mut last = vec![(NONE, 0.0_f64); self.ranks]; // of each rank: its last action, and when that ends
        let mut edges_start = 0;
        for (at, node) in self.actions.iter().enumerate() {
            let last = &mut last[node.rank as usize];
            let (mut after, free) = *last;
            let mut start = free;
            for edge in &self.edges[edges_start..node.edges_end as usize] {
                let arrival = edge.arrival(&times, hops);
                if arrival > start {
                    (start, after) = (arrival, edge.from);
                }
            }
            edges_start = node.edges_end as usize;
            let reason = (start > free).then(|| Reason::of_wait(times[after as usize].end, free));
            let end = start + seconds[node.sort as usize];
            times.push(Times { start, end, after, reason });
            *last = (at as u32, end);
        }
        (times, last.into_iter().map(|(_, end)| end).collect())
    }

    /// Returns the peak memory of each rank while actions of these sorts run, given the memory taken and freed by each sort.
    fn peak_memory(&self, memory: &[ActionMemory], counts: impl Fn(&Action) -> bool) -> Vec<f64> {
        let counts: Vec<bool> = self.sorts.iter().map(counts).collect();
        let mut peak = vec![0.0_f64; self.ranks];
        self.hold(memory, |ActionNode { rank, sort, .. }, held| {
            if counts[*sort as usize] {
                peak[*rank as usize] = peak[*rank as usize].max(held);
            }
        });
        peak
    }

    /// True if a forward or input gradient of the last stage is in the action.
    fn is_of_end(&self, action: &Action) -> bool {
        action.items().any(|item| {
            let is_last = item.stage.is_some_and(|stage| stage as usize + 1 == self.stages);
            is_last && matches!(item.kind, Kind::F | Kind::I | Kind::B)
        })
    }

    /// Calls `tell` with each action, and the memory of its rank while it runs.
    fn hold(&self, memory: &[ActionMemory], mut tell: impl FnMut(&ActionNode, f64)) {
        let mut held = vec![0.0; self.ranks];
        for node in &self.actions {
            let (held, memory) = (&mut held[node.rank as usize], memory[node.sort as usize]);
            tell(node, *held + memory.takes);
            *held += memory.takes - memory.frees;
        }
    }

    /// Marks memory as the reason of a gap if the rank's next F arrived before the end of the gap but did not fit in memory.
    fn blame_memory(&self, times: &mut [Times], hops: &[f64], memory: &[ActionMemory], limits: &[f64]) {
        let mut held = Vec::with_capacity(times.len());
        self.hold(memory, |_, with| held.push(with));
        let mut next_f: Vec<Option<(f64, f64)>> = vec![None; self.ranks]; // when it arrived, what it takes
        for (at, node) in self.actions.iter().enumerate().rev() {
            let rank = node.rank as usize;
            let Some(limit) = limits.get(rank) else { continue };
            let takes = memory[node.sort as usize].takes;
            if takes > 0.0 {
                let arrivals = self.edges(at).iter().map(|edge| edge.arrival(times, hops));
                next_f[rank] = Some((arrivals.fold(0.0, f64::max), takes));
            } else if times[at].reason.is_some()
                && next_f[rank].is_some_and(|(arrived, takes)| {
                    arrived < times[at].start && held[at] + takes > limit * (1.0 + 1e-9)
                })
            {
                times[at].reason = Some(Reason::Memory);
            }
        }
    }
}

impl Edge {
    /// Returns the arrival time of the input.
    fn arrival(&self, times: &[Times], hops: &[f64]) -> f64 {
        times[self.from as usize].end + hops[self.hop as usize]
    }
}

impl Simulation<'_> {
    /// Yields the rank and times of each action.
    pub(super) fn timed(&self) -> impl ExactSizeIterator<Item = (usize, &Times)> {
        self.graph.actions.iter().map(|node| node.rank as usize).zip(&self.times)
    }

    /// Returns the end of the last action, from time 0.
    pub fn makespan(&self) -> f64 {
        self.ends.iter().copied().fold(0.0, f64::max)
    }

    /// Returns the idle seconds of each rank by reason, as [`Timeline::idle`](super::Timeline::idle) does.
    pub fn idle(&self) -> Vec<Idle> {
        let mut idle = vec![Idle::default(); self.graph.ranks];
        let mut free = vec![0.0; self.graph.ranks];
        for (rank, times) in self.timed() {
            if let Some(reason) = times.reason {
                idle[rank].add(reason, free[rank], self.times[times.after as usize].end, times.start);
            }
            free[rank] = times.end;
        }
        let makespan = self.makespan();
        idle.iter_mut().zip(&self.ends).for_each(|(idle, end)| idle.barrier = makespan - end);
        idle
    }

    /// Yields the critical path, last action first. Each action starts when the next one of the path ends, or when the message
    /// of the next one arrives.
    pub fn critical_path(&self) -> impl Iterator<Item = usize> {
        let makespan = self.makespan();
        let ends_last = (0..self.times.len()).filter(|&at| self.times[at].end >= makespan);
        let last = ends_last.min_by_key(|&at| (self.graph.actions[at].rank, at));
        std::iter::successors(last, |&at| Some(self.times[at].after).filter(|&at| at != NONE).map(|at| at as usize))
    }

    /// Returns the rank and the action of a node, of an arbitrary micro-batch.
    pub fn action(&self, at: usize) -> (usize, &Action) {
        self.graph.action(at)
    }

    /// Yields the hops of the message that an action waited for last. A pair may have two, other actions have one; an action
    /// that waited for nothing has none.
    pub fn hops(&self, at: usize) -> impl Iterator<Item = usize> {
        let Times { after, reason, .. } = self.times[at];
        let edges = if reason.is_some() { self.graph.edges(at) } else { &[] };
        edges.iter().filter(move |edge| edge.from == after).filter_map(|edge| (edge.hop as usize).checked_sub(1))
    }
}
