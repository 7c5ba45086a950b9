//! A problem as a job shop: operations on ranks, their precedences, and their memory.

use crate::actions::with_step_end;
use crate::costs::ActionMemory;
use crate::placement::Pipeline;
use crate::problem::{Backward, Problem};
use ir::schedule::{Action, Item, Kind, Schedule};

/// An action that a rank runs without interruption.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// F, I, W or B.
    pub kind: Kind,
    /// Index of its stage.
    pub stage: usize,
    /// Index of its micro-batch.
    pub microbatch: usize,
    /// Rank that runs it.
    pub rank: usize,
    /// Its length in seconds.
    pub seconds: f64,
    /// Memory taken at its start.
    pub takes: f64,
    /// Memory freed at its end.
    pub frees: f64,
    /// Operations that must end before this one starts, by index, and the seconds that must pass in between.
    pub after: Vec<(usize, f64)>,
}

/// All operations of a problem: for every stage and micro-batch F, and B or I and W.
///
/// Operations of one kind and stage (and direction, with two chains) run in the order of the micro-batches. That loses no
/// optimal order: micro-batches are alike, so the k-th to start may be numbered k. Its inputs from another stage arrive no
/// later than the k-th to end there. With overlapped pairs, a W in a pair runs with its I, ahead of W that may wait. Only W in
/// no pair run in order, and no operation depends on the previous W.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The operations in topological order.
    pub operations: Vec<Operation>,
    /// The operations of each rank, by index.
    pub of_rank: Vec<Vec<usize>>,
    /// Memory limit of each rank; infinite without a limit.
    pub limit: Vec<f64>,
    /// Number of stages of the pipeline.
    pub stages: usize,
    /// Seconds of an overlapped pair of F and B. `None` if backwards are always split, or if no pair saves time.
    pub pair: Option<f64>,
}

/// Entry of a rank's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderEntry {
    /// An operation by itself.
    One(usize),
    /// An overlapped pair: an F, and a B or an I with its W.
    Pair(usize, usize),
}

impl From<usize> for OrderEntry {
    fn from(index: usize) -> OrderEntry {
        OrderEntry::One(index)
    }
}

impl Instance {
    /// Builds the operations of a problem. Backwards are B if the problem requires it, else I and W.
    pub fn new(problem: &Problem) -> Instance {
        let pipeline = problem.pipeline;
        let (stages, microbatches) = (pipeline.stages() as usize, pipeline.microbatches as usize);
        let fused = problem.backward == Backward::Fused;
        let mut operations = Vec::with_capacity(stages * microbatches * 3);
        for microbatch in 0..microbatches {
            for stage in 0..stages {
                let before = stage.checked_sub(1).map(|before| (Kind::F, before));
                operations.push(operation(problem, Kind::F, stage, microbatch, before.as_slice()));
            }
            let backward = if fused { Kind::B } else { Kind::I };
            for stage in (0..stages).rev() {
                let mut before = vec![(Kind::F, stage)];
                before.extend((stage + 1 < stages).then_some((backward, stage + 1)));
                operations.push(operation(problem, backward, stage, microbatch, &before));
            }
            for stage in (0..stages).rev().filter(|_| !fused) {
                operations.push(operation(problem, Kind::W, stage, microbatch, &[(Kind::I, stage)]));
            }
        }
        let pair = problem.costs.fb.filter(|&pair| problem.backward != Backward::Split && gains(problem, pair));
        let per_microbatch = stages * if fused { 2 } else { 3 };
        for (index, operation) in operations.iter_mut().enumerate().skip(per_microbatch) {
            let microbatch = (index / per_microbatch) as u32;
            let in_turn = operation.kind != Kind::W || pair.is_none();
            if in_turn && pipeline.goes_up(microbatch) == pipeline.goes_up(microbatch - 1) {
                operation.after.push((index - per_microbatch, 0.0));
            }
        }
        let mut of_rank = vec![Vec::new(); pipeline.ranks as usize];
        for (index, operation) in operations.iter().enumerate() {
            of_rank[operation.rank].push(index);
        }
        let limit = problem.costs.limit.clone().unwrap_or_else(|| vec![f64::INFINITY; pipeline.ranks as usize]);
        Instance { operations, of_rank, limit, stages, pair }
    }

    /// Returns the W of an I.
    pub fn weights(&self, index: usize) -> Option<usize> {
        (self.operations[index].kind == Kind::I).then_some(index + self.stages)
    }

    /// Returns the seconds that a pair of an F and a B or I saves over running its two (or three) operations in sequence.
    pub fn gain(&self, forward: usize, backward: usize) -> f64 {
        let weights = self.weights(backward).map_or(0.0, |weights| self.operations[weights].seconds);
        let alone = self.operations[forward].seconds + self.operations[backward].seconds + weights;
        self.pair.map_or(0.0, |pair| alone - pair)
    }

    /// Returns the seconds of all operations and hops one after the other.
    pub(super) fn sequential_seconds(&self) -> f64 {
        let operations = self.operations.iter();
        operations.map(|operation| operation.seconds + operation.after.iter().map(|(_, lag)| lag).sum::<f64>()).sum()
    }

    /// Returns, for each operation, the F of its stage and micro-batch.
    pub fn forwards(&self) -> Vec<usize> {
        let mut forwards: Vec<usize> = Vec::with_capacity(self.operations.len());
        for (index, operation) in self.operations.iter().enumerate() {
            let own = operation.after.iter().find(|(from, _)| {
                let from = &self.operations[*from];
                (from.stage, from.microbatch) == (operation.stage, operation.microbatch)
            });
            forwards.push(own.map_or(index, |&(from, _)| forwards[from]));
        }
        forwards
    }

    /// Builds the schedule whose rows are the given orders.
    pub fn schedule<S: Copy + Into<OrderEntry>>(&self, orders: &[Vec<S>]) -> Schedule {
        let rows = orders.iter().map(|order| with_step_end(order.iter().map(|&entry| self.action(entry.into()))));
        Schedule { name: "optimal".into(), rows: rows.collect() }
    }

    fn action(&self, entry: OrderEntry) -> Action {
        match entry {
            OrderEntry::One(index) => Action::One(self.item(index)),
            OrderEntry::Pair(forward, backward) => {
                Action::Pair(self.item(forward), Item { kind: Kind::B, ..self.item(backward) })
            }
        }
    }

    fn item(&self, index: usize) -> Item {
        let operation = &self.operations[index];
        Item::new(operation.kind, operation.stage as u32, operation.microbatch as u32)
    }
}

/// Returns whether a pair of `pair` seconds is shorter than some F and B of a rank in sequence.
fn gains(problem: &Problem, pair: f64) -> bool {
    let (costs, pipeline) = (problem.costs, problem.pipeline);
    (0..pipeline.ranks).any(|rank| {
        let forward = pipeline.stages_in_both_directions(rank).map(|stage| costs.f[stage]).fold(0.0, f64::max);
        let backward = pipeline.stages_in_both_directions(rank).map(|stage| costs.b(stage)).fold(0.0, f64::max);
        forward + backward > pair * (1.0 + 1e-9)
    })
}

/// Returns the index of an operation. Operations are numbered by micro-batch, and within one F up the stages, I down, W down.
fn number(problem: &Problem, kind: Kind, stage: usize, microbatch: usize) -> usize {
    let stages = problem.pipeline.stages() as usize;
    let place = match kind {
        Kind::F => stage,
        Kind::W => 3 * stages - 1 - stage,
        _ => 2 * stages - 1 - stage,
    };
    microbatch * stages * if problem.backward == Backward::Fused { 2 } else { 3 } + place
}

fn operation(problem: &Problem, kind: Kind, stage: usize, microbatch: usize, before: &[(Kind, usize)]) -> Operation {
    let rank = rank_of(problem.pipeline, stage, microbatch);
    let after = before.iter().map(|&(kind, from)| {
        let stays = rank_of(problem.pipeline, from, microbatch) == rank;
        let hop = if stays { 0.0 } else { problem.costs.comm[from.min(stage)] };
        (number(problem, kind, from, microbatch), hop)
    });
    let action = Action::One(Item::new(kind, stage as u32, microbatch as u32));
    let ActionMemory { takes, frees } = problem.costs.memory(&action);
    let seconds = problem.costs.seconds(&action);
    Operation { kind, stage, microbatch, rank, seconds, takes, frees, after: after.collect() }
}

fn rank_of(pipeline: &Pipeline, stage: usize, microbatch: usize) -> usize {
    pipeline.rank(stage as u32, microbatch as u32) as usize
}
