//! Orders of micro-batches, compiled to dependency graphs for simulation; orders independent of costs are computed once.

use super::critical_path::CriticalPath;
use super::error::Error;
use super::pipeline::Rank;
use super::quantities::{OpenMicrobatches, PerSection, RankStages, StageRuns};
use compiler::compile_error::CompileError;
use ir::schedule::{Action, Item, Kind};
use scheduler::costs::StageCosts;
use scheduler::placement::Pipeline;
use scheduler::schedules::ScheduleKind;
use scheduler::simulate::DependencyGraph;
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Thread-safe cache of orders that do not depend on costs.
#[derive(Default)]
pub(super) struct OrderCache {
    known: Mutex<CachedOrders>,
}

#[derive(Default)]
struct CachedOrders {
    orders: HashMap<(&'static str, Pipeline), Arc<Order>>,
    /// Number of actions of all orders.
    actions: usize,
}

/// Largest number of cached actions, of about 20 bytes each.
const CACHED: usize = 1 << 20;

impl OrderCache {
    /// Order of a schedule kind on a pipeline under these costs. If the cache is full, it is emptied first.
    ///
    /// # Errors
    /// The schedule does not support the pipeline.
    pub(super) fn get(
        &self,
        kind: &ScheduleKind,
        pipeline: &Pipeline,
        costs: &StageCosts,
    ) -> Result<Arc<Order>, Error> {
        let make = || Order::of(kind, pipeline, costs).map(Arc::new);
        if !kind.has_fixed_order() {
            return make();
        }
        let key = (kind.name, *pipeline);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(order) = known().orders.get(&key) {
            return Ok(Arc::clone(order));
        }
        let order = make()?;
        known().keep(key, &order);
        Ok(order)
    }
}

impl CachedOrders {
    fn keep(&mut self, key: (&'static str, Pipeline), order: &Arc<Order>) {
        if self.actions + order.graph.len() > CACHED {
            *self = CachedOrders::default();
        }
        if self.orders.insert(key, Arc::clone(order)).is_none() {
            self.actions += order.graph.len();
        }
    }
}

/// An order as a dependency graph, with the actions of each rank.
pub(super) struct Order {
    graph: DependencyGraph,
    ranks: Vec<RankActions>,
}

/// Actions of a rank.
struct RankActions {
    /// Stages of the rank.
    stages: RankStages,
    /// Peak number of micro-batches in flight of its last stage.
    in_flight: f64,
    /// Micro-batches of its first stage when the others have run their last backward, and when most of them wait for W after that.
    left: SmallVec<[OpenMicrobatches; 2]>,
    /// True if some backward has I and W together.
    fuses: bool,
}

impl Order {
    fn of(kind: &ScheduleKind, pipeline: &Pipeline, costs: &StageCosts) -> Result<Order, Error> {
        let schedule = kind.make(costs, pipeline).map_err(|why| CompileError::Schedule(why.to_string()))?;
        let stages = costs.f.len();
        let graph = DependencyGraph::of(&schedule, stages).map_err(|why| CompileError::Schedule(why.to_string()))?;
        let mut counts = vec![ActionCounts::new(stages); graph.ranks()];
        for (rank, action) in graph.actions() {
            counts[rank].add(action, 1.0 / f64::from(pipeline.slices));
        }
        Ok(Order { ranks: counts.into_iter().map(RankActions::of).collect(), graph })
    }

    /// Timelines of all ranks under costs, with `hops` seconds between stages, and the critical path.
    pub(super) fn run(&self, costs: &StageCosts, hops: &[f64], slices: f64) -> (Vec<Rank>, CriticalPath) {
        let run = self.graph.run(costs);
        let peaks = run.peak_memory.iter().zip(&run.peak_at_end);
        let figures = run.ends.iter().zip(run.idle()).zip(peaks);
        let rank = |(own, ((&end, idle), (&saved, &saved_at_end))): (&RankActions, _)| {
            let RankActions { ref stages, in_flight, ref left, fuses } = *own;
            let (stages, left, messages) = (stages.clone(), left.clone(), own.messages(hops));
            Rank { stages, end, idle, messages, saved, saved_at_end, in_flight, left, fuses, offloaded: 0.0 }
        };
        (self.ranks.iter().zip(figures).map(rank).collect(), CriticalPath::of(&run, costs.f.len(), hops, slices))
    }
}

impl RankActions {
    fn of(counts: ActionCounts) -> RankActions {
        let all = counts.runs.into_iter().enumerate().map(|(stage, runs)| StageRuns { stage, runs });
        let stages: RankStages = all.filter(|it| it.runs.f > 0.0).collect();
        let in_flight = stages.last().map_or(0.0, |it| counts.most[it.stage]);
        RankActions { in_flight, left: counts.left, fuses: counts.fuses, stages }
    }

    /// Seconds of its messages, half of each.
    fn messages(&self, hops: &[f64]) -> f64 {
        let hop = |hop: Option<usize>| hop.and_then(|hop| hops.get(hop)).copied().unwrap_or(0.0);
        let of_stage = |StageRuns { stage, runs }: &StageRuns| {
            (runs.f + runs.i) / 2.0 * (hop(stage.checked_sub(1)) + hop(Some(*stage)))
        };
        self.stages.iter().map(of_stage).sum()
    }
}

/// Actions of a rank by stage, counted in order.
#[derive(Clone)]
struct ActionCounts {
    /// Number of runs of each section.
    runs: Vec<PerSection>,
    /// Micro-batches in flight.
    open: Vec<f64>,
    /// Peak of `open` so far.
    most: Vec<f64>,
    /// The first stage.
    first: usize,
    /// Micro-batches of the first stage at the latest backward of another one, and when most of them waited for W after that.
    left: SmallVec<[OpenMicrobatches; 2]>,
    /// True if some backward has I and W together.
    fuses: bool,
}

impl ActionCounts {
    fn new(stages: usize) -> ActionCounts {
        let (runs, open) = (vec![PerSection::default(); stages], vec![0.0; stages]);
        ActionCounts { runs, most: open.clone(), open, first: stages, left: SmallVec::new(), fuses: false }
    }

    fn add(&mut self, action: &Action, times: f64) {
        for Item { kind, stage, .. } in action.items() {
            let Some(stage) = stage.map(|stage| stage as usize) else { continue };
            self.fuses |= kind == Kind::B;
            self.first = self.first.min(stage);
            let (PerSection { f, i, w }, open) = (&mut self.runs[stage], &mut self.open[stage]);
            match kind {
                Kind::F => (*f, *open) = (*f + times, *open + times),
                Kind::I => *i += times,
                Kind::W => (*w, *open) = (*w + times, *open - times),
                Kind::B => (*i, *w, *open) = (*i + times, *w + times, *open - times),
                _ => {}
            }
            self.most[stage] = self.most[stage].max(*open);
            self.note_left(kind, stage);
        }
    }

    /// Notes what is open of the first stage, after an action.
    fn note_left(&mut self, kind: Kind, stage: usize) {
        let PerSection { f, i, w } = self.runs[self.first];
        let open = OpenMicrobatches { for_i: f - i, for_w: i - w };
        if stage > self.first && matches!(kind, Kind::W | Kind::B) {
            self.left = smallvec![open];
        } else if self.left.last().is_some_and(|last| last.for_w < open.for_w) {
            self.left.truncate(1);
            self.left.push(open);
        }
    }
}

#[cfg(test)]
mod tests;
