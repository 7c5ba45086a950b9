//! Number of configurations of a space, without enumerating them.

use super::space::{Recomputable, Space};
use super::{Level, SearchNode};
use crate::search::keys::{Decided, decided_by};
use ir::config_key::ConfigKey;
use ir::options::{ParallelConfig, Recompute};
use scheduler::schedules::{self, SCHEDULES, ScheduleKind};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use support::parallel::each;

/// Largest number of degree nodes to count; for larger spaces the count is a lower bound.
const COUNTED: usize = 1 << 17;

/// Size of a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Number of configurations.
    pub configs: u64,
    /// True if the number is exact rather than a lower bound.
    pub is_all: bool,
}

/// Counts the configurations below these roots until `stop`. Degrees and micro-batches are enumerated; the levels below
/// are counted.
pub fn count(space: &Space, roots: &[SearchNode], stop: &(dyn Fn() -> bool + Sync)) -> Counted {
    let listed = Listed::of(space, roots, stop);
    let ranks: BTreeSet<u64> = listed.nodes.iter().map(|node| node.parallel.pp).collect();
    let ranks: Vec<u64> = ranks.into_iter().collect();
    let count = |&pp: &u64| of_ranks(space, listed.nodes.iter().filter(|node| node.parallel.pp == pp), stop);
    let configs = each(&ranks, count).into_iter().fold(0, u64::saturating_add);
    Counted { configs, is_all: listed.is_all && !stop() }
}

/// Nodes with all degrees decided.
struct Listed<'a> {
    nodes: Vec<Cow<'a, SearchNode>>,
    is_all: bool,
}

impl<'a> Listed<'a> {
    /// Enumerates the nodes below `roots`, up to [`COUNTED`].
    fn of(space: &Space, roots: &'a [SearchNode], stop: &(dyn Fn() -> bool + Sync)) -> Listed<'a> {
        let mut listed = Listed { nodes: Vec::new(), is_all: true };
        // Depth-first: the stack holds at most the halves of the device range and the degrees of one device count.
        let mut open: Vec<Cow<'a, SearchNode>> = roots.iter().rev().map(Cow::Borrowed).collect();
        while let Some(node) = open.pop() {
            if listed.nodes.len() >= COUNTED || stop() {
                listed.is_all = false;
                break;
            }
            match node.level {
                Level::Devices | Level::Degrees => {
                    open.extend(space.parts(&node).into_iter().rev().map(Cow::Owned));
                }
                _ => listed.nodes.push(node),
            }
        }
        listed
    }
}

/// Number of configurations among nodes with equal pipeline degree.
fn of_ranks<'a>(
    space: &Space,
    nodes: impl Iterator<Item = &'a Cow<'a, SearchNode>>,
    stop: &(dyn Fn() -> bool + Sync),
) -> u64 {
    let mut pipelines: HashMap<u64, [u64; 2]> = HashMap::new();
    let mut sum = 0u64;
    for node in nodes {
        let parallel = &node.parallel;
        let parts = space.shards(node);
        let shards =
            [false, true].map(|sliced| parts.iter().filter(|part| !sliced || can_slice(space, part)).count() as u64);
        let ways = space.sequence_shardings(parallel).len() as u64;
        for mbs in space.sizes(parallel) {
            if stop() {
                return sum;
            }
            let microbatches = space.global_batch / (parallel.dp * mbs);
            let of = || recomputed(space, parallel.pp, microbatches);
            let below = *pipelines.entry(microbatches).or_insert_with(of);
            for (shards, below) in shards.into_iter().zip(below) {
                sum = sum.saturating_add((ways * shards).saturating_mul(below));
            }
        }
    }
    sum
}

/// Levels that decide whether sequences may be cut into slices, apart from the choice of an order.
const SLICED: [Level; 5] = [Level::Degrees, Level::Axes, Level::Pipeline, Level::Shards, Level::Schedule];

/// Returns whether sequences may be cut into slices under an option for sharding states.
fn can_slice(space: &Space, part: &SearchNode) -> bool {
    if space.open_orders.slices == 1 {
        return false;
    }
    let is_sliced = |kind: &&ScheduleKind| kind.slices(None) > 1;
    SCHEDULES.iter().find(is_sliced).is_none_or(|kind| {
        let parallel = ParallelConfig { schedule: kind.name.to_string(), ..part.parallel.clone() };
        (space.supported)(Decided::unchecked(decided_by(&SLICED)), &parallel)
    })
}

/// Number of pipelines with `pp` ranks and `microbatches` micro-batches, times the recompute options: those of whole sequences, and
/// those of slices.
fn recomputed(space: &Space, pp: u64, microbatches: u64) -> [u64; 2] {
    let orders = space.orders_of(pp, microbatches);
    let is_sliced = |order: &super::Order| schedules::find(order.schedules[0]).is_ok_and(|kind| kind.slices(None) > 1);
    let of = |order: &super::Order| {
        // Boundaries that the oracle adds count once, whether or not it has any.
        let starts = space.starts(order.stages).len() as u64 + u64::from(space.opens_boundaries(order.stages));
        let longest = space.layers[0].div_ceil((pp * u64::from(order.vp.unwrap_or(1))).max(1));
        let set = space.pin.limits.set(ConfigKey::Recompute).map(|values| values.len() as u64);
        let ways = set.unwrap_or_else(|| match (space.pin.has(ConfigKey::Recompute), &space.pin.parallel.recompute) {
            // No recomputation, parts of layers, and each number of layers (or all layers).
            (false, _) | (true, Recompute::Auto) if space.supports.policies.is_some() => {
                space.supports.policies.iter().flatten().count() as u64
            }
            (false, _) | (true, Recompute::Auto) => {
                let Recomputable { parts, whole, some } = space.recomputable;
                1 + u64::from(parts) + if some { longest } else { u64::from(whole) }
            }
            (true, _) => 1,
        });
        starts * ways * order.schedules.len() as u64
    };
    [false, true].map(|sliced| orders.iter().filter(|order| is_sliced(order) == sliced).map(of).sum())
}
