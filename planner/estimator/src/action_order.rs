//! Orders of micro-batches, compiled to dependency graphs for simulation; orders independent of costs are computed once.

use super::critical_path::CriticalPath;
use super::pipeline::{Rank, Runs};
use compiler::compile_error::CompileError;
use compiler::error::Error;
use ir::schedule::{Action, Item, Kind};
use scheduler::costs::StageCosts;
use scheduler::placement::Pipeline;
use scheduler::schedules::ScheduleKind;
use scheduler::simulate::DependencyGraph;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Orders that no cost moves, for many threads.
#[derive(Default)]
pub(super) struct OrderCache {
    known: Mutex<CachedOrders>,
}

#[derive(Default)]
struct CachedOrders {
    orders: HashMap<(&'static str, Pipeline), Arc<Order>>,
    /// Of all of them.
    actions: usize,
}

/// Actions up to which orders are kept, of some 20 bytes each.
const KEPT: usize = 1 << 20;

impl OrderCache {
    /// The order of a schedule's kind on a pipeline under these costs. Where one more than can be kept is asked for, all are
    /// forgotten.
    ///
    /// # Errors
    /// The schedule does not suit the pipeline.
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
        if self.actions + order.wiring.len() > KEPT {
            *self = CachedOrders::default();
        }
        if self.orders.insert(key, Arc::clone(order)).is_none() {
            self.actions += order.wiring.len();
        }
    }
}

/// An order, and what each rank does in it whatever actions take.
pub(super) struct Order {
    wiring: DependencyGraph,
    lanes: Vec<RankActions>,
}

/// What a rank does.
struct RankActions {
    /// The stages that it runs.
    stages: Runs,
    /// The most micro-batches in flight of the last of them.
    in_flight: f64,
}

impl Order {
    fn of(kind: &ScheduleKind, pipeline: &Pipeline, costs: &StageCosts) -> Result<Order, Error> {
        let schedule = kind.make(costs, pipeline).map_err(CompileError::Schedule)?;
        let stages = costs.f.len();
        let wiring = DependencyGraph::of(&schedule, stages).map_err(|why| CompileError::Schedule(why.to_string()))?;
        let mut tallies = vec![ActionCounts::new(stages); wiring.ranks()];
        for (rank, action) in wiring.actions() {
            tallies[rank].add(action, 1.0 / f64::from(pipeline.slices));
        }
        Ok(Order { lanes: tallies.into_iter().map(RankActions::of).collect(), wiring })
    }

    /// What each rank does under costs, with so many seconds between stages, and what the end follows from.
    pub(super) fn run(&self, costs: &StageCosts, hops: &[f64], slices: f64) -> (Vec<Rank>, CriticalPath) {
        let run = self.wiring.run(costs);
        let figures = run.ends.iter().zip(run.idle()).zip(&run.peak_memory);
        let rank = |(lane, ((&end, idle), &kept)): (&RankActions, _)| {
            let RankActions { ref stages, in_flight } = *lane;
            Rank { stages: stages.clone(), end, idle, messages: lane.messages(hops), kept, in_flight, offloaded: 0.0 }
        };
        (self.lanes.iter().zip(figures).map(rank).collect(), CriticalPath::of(&run, costs.f.len(), hops, slices))
    }
}

impl RankActions {
    fn of(tally: ActionCounts) -> RankActions {
        let stages: Runs = tally.runs.into_iter().enumerate().filter(|(_, runs)| runs[0] > 0.0).collect();
        RankActions { in_flight: stages.last().map_or(0.0, |(stage, _)| tally.most[*stage]), stages }
    }

    /// Seconds of the messages that it sends and gets, half of each.
    fn messages(&self, hops: &[f64]) -> f64 {
        let hop = |hop: Option<usize>| hop.and_then(|hop| hops.get(hop)).copied().unwrap_or(0.0);
        let of =
            |(stage, [f, i, _]): &(usize, [f64; 3])| (f + i) / 2.0 * (hop(stage.checked_sub(1)) + hop(Some(*stage)));
        self.stages.iter().map(of).sum()
    }
}

/// What a rank has done, by stage.
#[derive(Clone)]
struct ActionCounts {
    /// How often it has run F, I and W.
    runs: Vec<[f64; 3]>,
    /// The micro-batches in flight.
    open: Vec<f64>,
    /// The most of them so far.
    most: Vec<f64>,
}

impl ActionCounts {
    fn new(stages: usize) -> ActionCounts {
        ActionCounts { runs: vec![[0.0; 3]; stages], open: vec![0.0; stages], most: vec![0.0; stages] }
    }

    fn add(&mut self, action: &Action, times: f64) {
        for Item { kind, stage, .. } in action.items() {
            let Some(stage) = stage.map(|stage| stage as usize) else { continue };
            let ([f, i, w], open) = (&mut self.runs[stage], &mut self.open[stage]);
            match kind {
                Kind::F => (*f, *open) = (*f + times, *open + times),
                Kind::I => *i += times,
                Kind::W => (*w, *open) = (*w + times, *open - times),
                Kind::B => (*i, *w, *open) = (*i + times, *w + times, *open - times),
                _ => {}
            }
            self.most[stage] = self.most[stage].max(*open);
        }
    }
}

#[cfg(test)]
mod tests;
