//! Best-first branch and bound.
//!
//! Open nodes are in a heap. A round takes up to [`ROUND`] of the best nodes, a number that differs at the start
//! but never depends on the thread count. Each node is either split into parts, which are bounded, or costed if it is
//! a single configuration. The results are merged in the order of the round, so answer and counts do not depend on
//! threads. A node is pruned if its bound exceeds the worst wanted configuration, or the memory budget. Without a
//! bound to compare with, every configuration is costed.
//!
//! A few configurations are searched first (`region`), since their results prune most of the rest.

use super::best::{Best, Ranked};
use super::boundaries::within;
use super::region::Region;
use super::space::Space;
use super::{Bound, CostEstimate, Level, Limits, Oracle, SearchNode};
use estimator::{ROUNDING, fits_budget};
use ir::options::ParallelConfig;
use std::collections::BinaryHeap;
use support::parallel::each;

/// Number of nodes per round.
const ROUND: usize = 64;

/// Number of nodes per round before they have bounds. None of them can prune another, so cores need not synchronise.
const FIRST_ROUND: usize = 4096;

/// Number of nodes per round until a feasible configuration is known; nothing is pruned before.
const DIVE: usize = 16;

/// Bound of a node that has not been evaluated.
const UNKNOWN: f64 = f64::NEG_INFINITY;

/// Byte difference below which two byte counts round to the same whole number.
const NEARLY_HALF: f64 = 0.499;

/// Search task.
pub struct Task<'a> {
    /// Number of configurations wanted.
    pub wanted: usize,
    /// Memory budget per device in bytes; `None` for no limit.
    pub memory: Option<f64>,
    /// True if the objective is memory rather than time.
    pub by_memory: bool,
    /// True if pruning is disabled, so that every configuration is costed.
    pub exhaustive: bool,
    /// Known upper bound on the objective (seconds, or bytes), above which no configuration is useful.
    pub below: f64,
    /// Relative improvement that another configuration must promise to be searched.
    pub gap: f64,
    /// Centre of a local search, which repeats around each better result; `None` searches everything.
    pub around: Option<ParallelConfig>,
    /// Callback after each round.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// Progress of the search.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Number of configurations costed.
    pub candidates: u64,
    /// Number of open nodes.
    pub open: usize,
    /// Best objective value so far.
    pub best: Option<f64>,
}

/// Search result.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Best configurations, best first.
    pub best: Vec<Ranked>,
    /// Number of configurations costed.
    pub candidates: u64,
    /// True if the search is complete: nothing better remains.
    pub finished: bool,
    /// Lower bound on the objective over the stage boundaries that were not looked at; infinite if there are none.
    pub others: f64,
    /// Lower bound on the objective of the configurations that were not searched; `None` if there are none, or no bound is
    /// known.
    pub open: Option<f64>,
}

/// Open node, ordered by the least guess, then the deepest level, then the oldest.
struct OpenNode {
    /// Lower bound on the objective.
    bound: f64,
    /// Bound scaled by its expected growth at lower levels.
    guess: f64,
    known: Bound,
    number: u64,
    node: SearchNode,
}

impl OpenNode {
    fn new(bound: f64, known: Bound, number: u64, node: SearchNode) -> OpenNode {
        // Bounds of higher levels are looser. Scaling by level finds an incumbent early.
        let grows = match node.level {
            Level::Devices | Level::Degrees | Level::Axes | Level::SequenceSharding | Level::Batch => 1.15,
            Level::Pipeline | Level::Stages => 1.02,
            _ => 1.0,
        };
        OpenNode { bound, guess: bound * grows, known, number, node }
    }
}

impl PartialEq for OpenNode {
    fn eq(&self, other: &OpenNode) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OpenNode {}

impl PartialOrd for OpenNode {
    fn partial_cmp(&self, other: &OpenNode) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OpenNode {
    fn cmp(&self, other: &OpenNode) -> std::cmp::Ordering {
        let deeper = self.node.level.cmp(&other.node.level);
        other.guess.total_cmp(&self.guess).then(deeper).then(other.number.cmp(&self.number))
    }
}

/// State that a round uses.
#[derive(Clone, Copy)]
struct SearchState<'a> {
    best: &'a Best,
    memory: Option<f64>,
    by_memory: bool,
    exhaustive: bool,
    /// Objective value above which a node is not useful.
    threshold: f64,
    /// True if no feasible configuration is known after the usual ones were searched, so that possibly none exists.
    is_doubted: bool,
    stop: &'a (dyn Fn() -> bool + Send + Sync),
}

/// Finds the best configurations of a space: first among the likely ones, then near the incumbent as long as it
/// improves, then among all.
pub fn search(space: &Space, roots: &[SearchNode], oracle: &impl Oracle, mut task: Task<'_>) -> Outcome {
    let mut known = Known { best: Best::new(task.wanted, task.by_memory), candidates: 0, others: f64::INFINITY };
    let mut gone: Vec<Region> = Vec::new();
    // A known upper bound prunes as much as a search of the usual region would.
    let is_known = task.below.is_finite();
    let mut next = match &task.around {
        Some(centre) => Region::near(centre),
        None if task.exhaustive || is_known => Region::All,
        None => Region::Likely,
    };
    let Task { exhaustive, by_memory, .. } = task;
    loop {
        // Configurations costed in an earlier region are skipped.
        let is_new =
            |part: &SearchNode| part.level < Level::Complete || !gone.iter().any(|region| region.holds(space, part));
        let is_next = |part: &SearchNode| {
            next.holds(space, part) && is_new(part) && (exhaustive || !space.wastes_overlap(part, by_memory))
        };
        let nodes = roots.iter().filter(|node| is_next(node)).cloned().collect();
        let faster = |node: &SearchNode, limits: Limits| {
            let is_wanted = next.has_other_stages() && space.is_open(node);
            let stages = is_wanted.then(|| oracle.faster_stages(node, limits)).flatten();
            stages.map(|stages| within(node, stages)).filter(|part| space.supports(part))
        };
        let parts = |node: &SearchNode, limits: Limits| {
            space.parts(node).into_iter().chain(faster(node, limits)).filter(is_next).collect()
        };
        let is_open = |node: &SearchNode| space.is_open(node);
        let pass = Pass { parts: &parts, is_open: &is_open, is_first: gone.is_empty(), stop: &*space.stop };
        let left = go_through(nodes, &pass, oracle, &mut task, &mut known);
        let (finished, is_all) = (left.is_none(), next == Region::All);
        gone.push(next);
        let near = known.best.first().map(|best| Region::near(&best.parallel));
        let rest = if task.around.is_some() { Region::Usual } else { Region::All };
        let open = near.into_iter().chain([rest]).find(|region| !gone.contains(region));
        match open.filter(|_| finished && !is_all) {
            Some(region) => next = region,
            None => {
                let Known { best, candidates, others } = known;
                let open = left.filter(|_| is_all);
                return Outcome { best: best.ranked(), candidates, finished: finished && is_all, others, open };
            }
        }
    }
}

/// Results so far.
struct Known {
    best: Best,
    candidates: u64,
    /// Lower bound on the objective over the stage boundaries that were not looked at.
    others: f64,
}

/// Parts of a node that may have configurations within the limits.
type Parts<'a> = dyn Fn(&SearchNode, Limits) -> Vec<SearchNode> + Sync + 'a;

/// One search pass over some nodes.
struct Pass<'a> {
    parts: &'a Parts<'a>,
    /// True for a node that has more parts than these: its stage boundaries are open.
    is_open: &'a (dyn Fn(&SearchNode) -> bool + Sync),
    /// True if this is the first pass.
    is_first: bool,
    stop: &'a (dyn Fn() -> bool + Send + Sync),
}

/// Processes nodes until none can be better. Returns the least bound of those that were left when the pass was stopped;
/// `None` if it is complete.
fn go_through(
    nodes: Vec<SearchNode>,
    pass: &Pass<'_>,
    oracle: &impl Oracle,
    task: &mut Task<'_>,
    known: &mut Known,
) -> Option<f64> {
    let (mut heap, mut number) = (BinaryHeap::new(), 0);
    let Pass { parts, is_open, is_first, stop } = *pass;
    for node in nodes {
        number += 1;
        heap.push(OpenNode::new(UNKNOWN, Bound { seconds: 0.0, bytes: 0.0 }, number, node));
    }
    let Task { memory, by_memory, exhaustive, below, gap, .. } = *task;
    while !heap.is_empty() {
        let Known { best, candidates, others } = known;
        let threshold = if exhaustive { f64::INFINITY } else { (best.threshold() * (1.0 - gap)).min(below) };
        let most = if exhaustive || threshold.is_finite() { ROUND } else { DIVE };
        let round = round(&mut heap, most, threshold);
        *others = round.iter().filter(|open| is_open(&open.node)).map(|open| open.bound).fold(*others, f64::min);
        let is_doubted = memory.is_some() && !by_memory && !exhaustive && !is_first && best.first().is_none();
        let state = SearchState { best, memory, by_memory, exhaustive, threshold, is_doubted, stop };
        let evaluations: Vec<Vec<Evaluation>> = each(&round, |waiting| state.evaluations(parts, waiting));
        let results = state.evaluate_all(oracle, &evaluations.iter().flatten().collect::<Vec<&Evaluation>>());
        for (Evaluation { node, is_costed, .. }, result) in evaluations.into_iter().flatten().zip(results) {
            *candidates += u64::from(is_costed);
            match result {
                Some(EvaluationResult::Bound(bound, known)) => {
                    number += 1;
                    heap.push(OpenNode::new(bound, known, number, node));
                }
                Some(EvaluationResult::Cost(cost)) if memory.is_none_or(|memory| cost.bytes <= memory) => {
                    best.offer(Ranked { parallel: node.parallel, cost });
                }
                _ => {}
            }
        }
        let value = |ranked: &Ranked| if by_memory { ranked.cost.bytes } else { ranked.cost.seconds };
        (task.progress)(Progress { candidates: *candidates, open: heap.len(), best: best.first().map(value) });
        // Evaluations after the stop have no result.
        if stop() {
            return Some(round.iter().chain(&heap).map(|left| left.bound).fold(f64::INFINITY, f64::min));
        }
    }
    stop().then_some(UNKNOWN)
}

/// Next nodes within the threshold: at most `most`, or [`FIRST_ROUND`] of those without a bound.
fn round(heap: &mut BinaryHeap<OpenNode>, most: usize, threshold: f64) -> Vec<OpenNode> {
    let are_new = heap.peek().is_some_and(|next| next.bound == UNKNOWN);
    let most = if are_new { FIRST_ROUND } else { most };
    let mut round = Vec::new();
    while round.len() < most
        && let Some(next) = heap.pop()
    {
        if next.bound <= threshold {
            round.push(next);
        }
    }
    round
}

/// Evaluation of a node.
struct Evaluation {
    node: SearchNode,
    /// Bounds inherited from a larger node.
    known: Bound,
    /// True to compute the cost rather than a bound.
    is_costed: bool,
}

enum EvaluationResult {
    /// Lower bound on the objective, and the bounds on both metrics.
    Bound(f64, Bound),
    Cost(CostEstimate),
}

impl SearchState<'_> {
    /// Limits of useful configurations.
    fn limits(&self) -> Limits {
        if self.by_memory {
            Limits { seconds: f64::INFINITY, bytes: None }
        } else {
            Limits { seconds: self.threshold, bytes: self.memory }
        }
    }

    /// Evaluations for an open node.
    fn evaluations(&self, parts: &Parts<'_>, waiting: &OpenNode) -> Vec<Evaluation> {
        let OpenNode { node, known, bound, .. } = waiting;
        let known = *known;
        if !self.exhaustive && self.best.threshold_of(node) < *bound {
            return Vec::new();
        }
        if *bound == UNKNOWN || node.level == Level::Complete {
            return vec![Evaluation { node: node.clone(), known, is_costed: *bound != UNKNOWN }];
        }
        parts(node, self.limits()).into_iter().map(|node| Evaluation { node, known, is_costed: false }).collect()
    }

    /// Runs all evaluations. Costs take longest: they are distributed so that no core starts one when the others are
    /// done, and no two cores evaluate the same pipeline, for which they would wait on each other.
    fn evaluate_all(&self, oracle: &impl Oracle, evaluations: &[&Evaluation]) -> Vec<Option<EvaluationResult>> {
        let mut order: Vec<usize> = (0..evaluations.len()).collect();
        order.sort_by_key(|&at| {
            let Evaluation { node: SearchNode { parallel, .. }, is_costed, .. } = evaluations[at];
            let pipeline = (&parallel.schedule, parallel.pp, parallel.mbs, &parallel.stages);
            (!is_costed, is_costed.then_some(pipeline))
        });
        let mut results: Vec<Option<EvaluationResult>> = evaluations.iter().map(|_| None).collect();
        let evaluate = |&at: &usize| if (self.stop)() { None } else { self.evaluate(oracle, evaluations[at]) };
        for (&at, result) in order.iter().zip(each(&order, evaluate)) {
            results[at] = result;
        }
        results
    }

    /// Cost of a configuration, or bound of a node that is valid, fits the memory budget and may be useful.
    fn evaluate(
        &self,
        oracle: &impl Oracle,
        Evaluation { node, known, is_costed }: &Evaluation,
    ) -> Option<EvaluationResult> {
        let limits = self.limits();
        if *is_costed {
            return oracle.cost(&node.parallel, limits).map(EvaluationResult::Cost);
        }
        let Bound { seconds, bytes } = oracle.bound(node, *known, limits)?;
        // Bounds of a node hold for its parts.
        let found = Bound { seconds: seconds.max(known.seconds), bytes: bytes.max(known.bytes) };
        let bound = (if self.by_memory { found.bytes } else { found.seconds }) * (1.0 - ROUNDING);
        let fits = fits_budget(found.bytes, self.memory);
        let is_of_use =
            || fits && bound.is_finite() && bound <= self.threshold && self.best.threshold_of(node) >= bound;
        let is_ruled_out = || self.has_no_room(oracle, node, found) || self.is_beaten(oracle, node, found);
        (self.exhaustive || is_of_use() && !is_ruled_out()).then_some(EvaluationResult::Bound(bound, found))
    }

    /// Returns whether no member of a node fits, checked only while feasibility is in doubt; time bounds say little about
    /// memory.
    fn has_no_room(&self, oracle: &impl Oracle, node: &SearchNode, known: Bound) -> bool {
        let limits = Limits { seconds: f64::INFINITY, bytes: None };
        let least = || oracle.bound(node, known, limits).map(|bound| bound.bytes);
        self.is_doubted && least().is_none_or(|bytes| !fits_budget(bytes, self.memory))
    }

    /// Returns whether no member of a node can win on the tie-break metric, if its memory equals that of the configuration to
    /// beat.
    fn is_beaten(&self, oracle: &impl Oracle, node: &SearchNode, found: Bound) -> bool {
        let Some(rival) = self.best.rival(node).filter(|_| self.by_memory) else { return false };
        let CostEstimate { seconds, bytes, .. } = rival.cost;
        if found.bytes < bytes.round() - NEARLY_HALF {
            return false;
        }
        let offloads =
            node.parallel.offload_optimizer || node.level >= Level::Offload && !node.parallel.offload.is_none();
        if offloads != rival.parallel.uses_host() {
            return offloads;
        }
        let limits = Limits { seconds, bytes: Some(bytes.round() + 1.0) };
        let bound = oracle.bound(node, Bound { seconds: 0.0, bytes: 0.0 }, limits);
        bound.is_none_or(|bound| bound.seconds * (1.0 - ROUNDING) > seconds)
    }
}
