//! Schedule checker. It shares no code with the schedule generators or with the simulator, and reports every violation.
//!
//! A schedule of S stages, m micro-batches (and q slices each, if it is sliced) is valid when
//! 1. every stage has for every micro-batch and slice exactly one F, and either one B or one I and one W;
//! 2. each of these actions is on the rank that has the stage;
//! 3. the rows can be executed in the given order: a rank blocks at an action until its inputs have arrived, and a send does
//!    not wait for its receiver. This holds iff row order and messages together have no cycle;
//! 4. no rank ever exceeds its memory limit;
//! 5. each row ends R N U, and has no other R, N or U.

use crate::costs::StageCosts;
use crate::decimal::precise;
use crate::placement::Pipeline;
use ir::schedule::{Action, Item, Kind, Schedule};
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A violated invariant of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// Rank of the violation.
    pub rank: usize,
    /// Position in the rank's row; `None` if an item is missing.
    pub position: Option<usize>,
    /// Description of the violation.
    pub text: String,
}

/// The invariants of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    /// An item names a stage, micro-batch or slice that does not exist.
    Range,
    /// A required item is missing.
    Missing,
    /// An item appears twice.
    Duplicate,
    /// An item is on a rank that does not have its stage.
    Rank,
    /// The rows deadlock.
    Order,
    /// A rank exceeds its memory limit.
    Memory,
    /// A row does not end in R N U, or has one of them elsewhere.
    StepEnd,
}

impl Violation {
    fn at(rank: usize, position: usize, invariant: Invariant, text: String) -> Violation {
        Violation { invariant, rank, position: Some(position), text }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        if let Some(position) = self.position {
            write!(f, ", position {position}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// A rank and a position in its row.
type At = (usize, usize);

/// All positions of each item.
type Standing = BTreeMap<Item, Vec<At>>;

/// Returns all violations in a schedule of a pipeline.
pub fn check_pipeline(schedule: &Schedule, costs: &StageCosts, pipeline: &Pipeline) -> Vec<Violation> {
    let slices = if pipeline.slices > 1 || is_sliced(schedule) { pipeline.slices } else { 0 };
    violations(schedule, costs, pipeline.microbatches, slices, |stage, microbatch| pipeline.rank(stage, microbatch))
}

/// Returns all violations in a schedule. The number of slices is the number of those that the items name. `owner(stage,
/// microbatch)` is the rank that runs the stage for the micro-batch.
pub fn check(
    schedule: &Schedule,
    costs: &StageCosts,
    microbatches: u32,
    owner: impl Fn(u32, u32) -> u32,
) -> Vec<Violation> {
    let named: BTreeSet<u32> = items(schedule).filter_map(|(item, _)| item.slice).collect();
    violations(schedule, costs, microbatches, named.len() as u32, owner)
}

fn is_sliced(schedule: &Schedule) -> bool {
    items(schedule).any(|(item, _)| item.slice.is_some())
}

/// Returns all violations in a schedule with `slices` slices, or 0 if micro-batches are not sliced.
fn violations(
    schedule: &Schedule,
    costs: &StageCosts,
    microbatches: u32,
    slices: u32,
    owner: impl Fn(u32, u32) -> u32,
) -> Vec<Violation> {
    let mut found = Vec::new();
    let slices: Vec<Option<u32>> = if slices == 0 { vec![None] } else { (0..slices).map(Some).collect() };
    let standing = standing(schedule, costs.stages(), microbatches, &slices, &mut found);
    for stage in 0..costs.stages() {
        for microbatch in 0..microbatches {
            for &slice in &slices {
                let forward = Item { kind: Kind::F, stage: Some(stage), microbatch: Some(microbatch), slice };
                let unit = Unit { forward, owner: owner(stage, microbatch) as usize, standing: &standing };
                unit.check(&mut found);
            }
        }
    }
    order(schedule, &standing, &mut found);
    for (rank, row) in schedule.rows.iter().enumerate() {
        memory(rank, row, costs, &mut found);
        step_end(rank, row, &mut found);
    }
    found
}

fn items(schedule: &Schedule) -> impl Iterator<Item = (Item, At)> {
    let rows = schedule.rows.iter().enumerate();
    let actions = rows.flat_map(|(rank, row)| row.iter().enumerate().map(move |(at, action)| (action, (rank, at))));
    actions.flat_map(|(action, at)| action.items().map(move |item| (item, at)))
}

fn standing(
    schedule: &Schedule,
    stages: u32,
    microbatches: u32,
    slices: &[Option<u32>],
    found: &mut Vec<Violation>,
) -> Standing {
    let mut standing = Standing::new();
    let last_slice = slices.last().copied().flatten();
    for (item, (rank, at)) in
        items(schedule).filter(|(item, _)| matches!(item.kind, Kind::F | Kind::I | Kind::W | Kind::B))
    {
        let inside = item.stage.is_some_and(|s| s < stages)
            && item.microbatch.is_some_and(|m| m < microbatches)
            && item.slice.is_some() == last_slice.is_some()
            && item.slice <= last_slice;
        if inside {
            standing.entry(item).or_default().push((rank, at));
        } else {
            let slices = last_slice.map_or(String::new(), |last| format!(" of {} slices", last + 1));
            let text = format!("{item} is none of {stages} stages x {microbatches} micro-batches{slices}");
            found.push(Violation::at(rank, at, Invariant::Range, text));
        }
    }
    standing
}

/// The items of one stage, micro-batch and slice.
struct Unit<'a> {
    forward: Item,
    /// The rank of the stage.
    owner: usize,
    standing: &'a Standing,
}

impl Unit<'_> {
    fn item(&self, kind: Kind) -> Item {
        Item { kind, ..self.forward }
    }

    fn positions(&self, item: Item) -> &[At] {
        self.standing.get(&item).map_or(&[], Vec::as_slice)
    }

    fn runs(&self, item: Item) -> bool {
        !self.positions(item).is_empty()
    }

    /// Checks invariants 1 and 2.
    fn check(&self, found: &mut Vec<Violation>) {
        let [f, b, i, w] = [Kind::F, Kind::B, Kind::I, Kind::W].map(|kind| self.item(kind));
        let no_forward = (!self.runs(f)).then(|| format!("{f} does not run"));
        let no_backward = match (self.runs(b), self.runs(i), self.runs(w)) {
            (false, false, false) => Some(format!("neither {b} nor {i} runs")),
            (false, true, false) => Some(format!("{i} runs, but {w} does not")),
            (false, false, true) => Some(format!("{w} runs, but {i} does not")),
            _ => None,
        };
        for text in no_forward.into_iter().chain(no_backward) {
            found.push(Violation { invariant: Invariant::Missing, rank: self.owner, position: None, text });
        }
        for item in [f, b, i, w] {
            self.check_positions(item, found);
        }
    }

    /// Checks that each position of an item is the only one, and on the rank of its stage.
    fn check_positions(&self, item: Item, found: &mut Vec<Violation>) {
        let positions = self.positions(item);
        for (nth, &(rank, at)) in positions.iter().enumerate() {
            if nth > 0 {
                let (first_rank, first_at) = positions[0];
                let text = format!("{item} ran already on rank {first_rank}, position {first_at}");
                found.push(Violation::at(rank, at, Invariant::Duplicate, text));
            }
            if rank != self.owner {
                let text = format!("{item} runs here, but its stage is on rank {}", self.owner);
                found.push(Violation::at(rank, at, Invariant::Rank, text));
            }
            let b = self.item(Kind::B);
            if self.runs(b) && matches!(item.kind, Kind::I | Kind::W) {
                let text = format!("{item} is part of {b}, which runs too");
                found.push(Violation::at(rank, at, Invariant::Duplicate, text));
            }
        }
    }
}

/// Checks invariant 3: every strongly connected component of the graph of rows and messages is a single action.
fn order(schedule: &Schedule, standing: &Standing, found: &mut Vec<Violation>) {
    let mut graph: DiGraph<At, Item> = DiGraph::new();
    let nodes: Vec<Vec<NodeIndex>> = (schedule.rows.iter().enumerate())
        .map(|(rank, row)| (0..row.len()).map(|at| graph.add_node((rank, at))).collect())
        .collect();
    for (row, nodes) in schedule.rows.iter().zip(&nodes) {
        for (action, pair) in row.iter().zip(nodes.windows(2)) {
            graph.add_edge(pair[0], pair[1], action.items().next().expect("an action has an item"));
        }
    }
    for (item, (rank, at)) in items(schedule) {
        for (need, (from, position)) in inputs(item, standing) {
            graph.add_edge(nodes[from][position], nodes[rank][at], need);
        }
    }
    for part in kosaraju_scc(&graph) {
        let looped = part.len() > 1 || graph.contains_edge(part[0], part[0]);
        if looped {
            stuck(schedule, standing, part.iter().map(|&node| graph[node]).collect(), found);
        }
    }
}

/// Returns the inputs of an item and their positions.
fn inputs(item: Item, standing: &Standing) -> Vec<(Item, At)> {
    let mut needs = Vec::with_capacity(5);
    match item.kind {
        Kind::F => needs.extend(neighbours(item, -1)),
        Kind::I | Kind::B => {
            needs.push(Item { kind: Kind::F, ..item });
            needs.extend(neighbours(item, 1).flat_map(|after| [Kind::I, Kind::B].map(|kind| Item { kind, ..after })));
        }
        Kind::W => needs.push(Item { kind: Kind::I, ..item }),
        _ => {}
    }
    needs.into_iter().filter_map(|need| Some((need, *standing.get(&need)?.first()?))).collect()
}

/// Returns the same item of the stage before or after, then that of the slice before or after.
fn neighbours(item: Item, by: i32) -> impl Iterator<Item = Item> {
    let stage = item.stage.and_then(|stage| stage.checked_add_signed(by));
    let slice = item.slice.and_then(|slice| slice.checked_add_signed(by));
    let in_stage = stage.map(|stage| Item { stage: Some(stage), ..item });
    in_stage.into_iter().chain(slice.map(|slice| Item { slice: Some(slice), ..item }))
}

/// Reports a violation for the first action of each rank in a cycle, which waits for another action of the cycle.
fn stuck(schedule: &Schedule, standing: &Standing, mut cycle: Vec<At>, found: &mut Vec<Violation>) {
    cycle.sort_unstable();
    let heads: Vec<At> = cycle.chunk_by(|a, b| a.0 == b.0).map(|of_rank| of_rank[0]).collect();
    for &(rank, at) in &heads {
        let action = schedule.rows[rank][at];
        let needs = action.items().flat_map(|item| inputs(item, standing));
        for (need, (from, position)) in needs.filter(|(_, place)| cycle.binary_search(place).is_ok()) {
            let head = heads.iter().find(|head| head.0 == from).map(|&(_, at)| schedule.rows[from][at]);
            let since = match head {
                Some(_) if from == rank => format!("at position {position} of the same row"),
                Some(head) => format!("of rank {from}, which is at {head}"),
                None => format!("of rank {from}"),
            };
            let text = format!("deadlock: {action} waits for {need} {since}");
            found.push(Violation::at(rank, at, Invariant::Order, text));
        }
    }
}

/// Checks invariant 4, and reports the first position that exceeds the limit.
fn memory(rank: usize, row: &[Action], costs: &StageCosts, found: &mut Vec<Violation>) {
    let Some(&limit) = costs.limit.as_ref().and_then(|limit| limit.get(rank)) else { return };
    let mut held = 0.0;
    for (at, action) in row.iter().enumerate() {
        held += action.items().map(|item| taken(item, costs)).sum::<f64>();
        if held > limit + 1e-9 * limit {
            let (held, limit) = (precise(held), precise(limit));
            let text = format!("{action} brings the memory in use to {held}, over the limit of {limit}");
            found.push(Violation::at(rank, at, Invariant::Memory, text));
            return;
        }
        held -= action.items().map(|item| freed(item, costs)).sum::<f64>();
    }
}

/// Returns the memory that an item takes at its start.
fn taken(item: Item, costs: &StageCosts) -> f64 {
    if item.kind == Kind::F { of_stage(&costs.mem_f, item) } else { 0.0 }
}

/// Returns the memory that an item frees at its end.
fn freed(item: Item, costs: &StageCosts) -> f64 {
    match item.kind {
        Kind::I => of_stage(&costs.mem_i, item),
        Kind::W => of_stage(&costs.mem_w, item),
        Kind::B => of_stage(&costs.mem_f, item),
        _ => 0.0,
    }
}

/// Returns the number of the item's stage; 0 if there is no such stage.
fn of_stage(costs: &[f64], item: Item) -> f64 {
    item.stage.and_then(|stage| costs.get(stage as usize)).copied().unwrap_or(0.0)
}

/// Checks invariant 5.
fn step_end(rank: usize, row: &[Action], found: &mut Vec<Violation>) {
    let end = [Kind::R, Kind::N, Kind::U].map(|kind| Action::One(Item::step(kind)));
    if !row.ends_with(&end) {
        let text = "the row does not end R N U".into();
        found.push(Violation { invariant: Invariant::StepEnd, rank, position: None, text });
    }
    let work = row.strip_suffix(&end).unwrap_or(row);
    for (at, action) in work.iter().enumerate() {
        if action.items().any(|item| matches!(item.kind, Kind::R | Kind::N | Kind::U)) {
            let text = format!("{action} precedes the end of the row");
            found.push(Violation::at(rank, at, Invariant::StepEnd, text));
        }
    }
}

#[cfg(test)]
mod tests;
