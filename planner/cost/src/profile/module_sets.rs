//! Pareto-optimal sets of modules to recompute, for stacks that cannot recompute single values. A set applies to all layers:
//! no framework chooses it by kind of layer.

use super::frontier::{Frontier, Kind, RecomputeChoice};
use super::keep::Keep;
use super::modules::Dropped;
use super::site::Site;
use super::tensors::RecomputeTimes;
use crate::block_options::BlockOptions;
use crate::platform::Platform;
use crate::quantities::RecomputeCost;
use ir::entity::EntityRef;
use ir::graph::Model;
use ir::ids::BlockId;
use std::collections::HashMap;
use transforms::recompute::is_layer;

/// The layers of a kind, with the cost of an instance under each set of modules that changes this cost.
struct Layers {
    block: BlockId,
    /// Number of instances.
    runs: f64,
    /// Cost of an instance, by the bits of the modules in `changes`.
    costs: HashMap<usize, RecomputeCost>,
    /// Bits of the modules that change the cost.
    changes: usize,
}

/// Pareto-optimal sets of these modules in bytes and seconds, for `runs` instances of each block.
pub(super) fn frontier(
    model: &Model,
    runs: &[f64],
    options: &BlockOptions,
    platform: &Platform<'_>,
    modules: &[&str],
) -> Frontier {
    let blocks = model.blocks.iter().filter(|(id, block)| is_layer(block) && runs[id.index()] > 0.0);
    let layers: Vec<Layers> = blocks
        .map(|(id, block)| Layers::of(id, runs[id.index()], &Site::new(model, block, options, platform), modules))
        .collect();
    if layers.is_empty() {
        return Frontier::none();
    }
    let changes = layers.iter().fold(0, |bits, kind| bits | kind.changes);
    let all = (0..1usize << modules.len()).filter(|set| set & !changes == 0);
    let mut sets: Vec<(usize, RecomputeCost)> = all.map(|set| (set, sum(&layers, set))).collect();
    sets.sort_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds).then(a.bytes.total_cmp(&b.bytes)));
    let mut least = f64::INFINITY;
    sets.retain(|(_, cost)| {
        let is_less = cost.bytes < least;
        least = least.min(cost.bytes);
        is_less
    });
    of_sets(&layers, &sets, modules)
}

/// Cost of all layers under a set.
fn sum(layers: &[Layers], set: usize) -> RecomputeCost {
    layers.iter().fold(RecomputeCost::default(), |sum, kind| sum + kind.runs * kind.under(set))
}

/// Choices of sets, the fastest first.
fn of_sets(layers: &[Layers], sets: &[(usize, RecomputeCost)], modules: &[&str]) -> Frontier {
    // Least seconds of each set and of all sets that save less.
    let suffix_minima = |seconds: &dyn Fn(usize) -> f64| -> Vec<f64> {
        let mut least = f64::INFINITY;
        let mut with = |set: usize| {
            least = least.min(seconds(set));
            least
        };
        let mut minima: Vec<f64> = sets.iter().rev().map(|(set, _)| with(*set)).collect();
        minima.reverse();
        minima
    };
    let least = suffix_minima(&|set| sum(layers, set).seconds);
    let by_block = layers.iter().map(|kind| (kind.block, suffix_minima(&|set| kind.under(set).seconds))).collect();
    let names = |set: usize| {
        let named = modules.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        named.map(|(_, module)| module.to_string()).collect()
    };
    let choice = |(at, &(_, RecomputeCost { bytes, seconds })): (usize, &(usize, RecomputeCost))| RecomputeChoice {
        choices: vec![at],
        bytes,
        seconds,
        least: least[at],
    };
    let best: Vec<RecomputeChoice> = sets.iter().enumerate().map(choice).collect();
    let bytes = best.iter().map(|choice| choice.bytes).collect();
    let seconds = best.iter().map(|choice| choice.seconds).collect();
    let kind = Kind { block: layers[0].block, runs: 1.0, bytes, seconds, least };
    Frontier::of_sets(kind, sets.iter().map(|(set, _)| names(*set)).collect(), by_block, best)
}

impl Layers {
    fn of(block: BlockId, runs: f64, site: &Site<'_>, modules: &[&str]) -> Layers {
        let times = RecomputeTimes::of(site);
        let none = cost_under(0, site, &times, modules);
        let mut costs = HashMap::from([(0, none)]);
        let mut changes = 0;
        for set in (0..modules.len()).map(|at| 1 << at) {
            let alone = cost_under(set, site, &times, modules);
            if alone != none {
                changes |= set;
                costs.insert(set, alone);
            }
        }
        for set in (0..1usize << modules.len()).filter(|set| set & !changes == 0) {
            costs.entry(set).or_insert_with(|| cost_under(set, site, &times, modules));
        }
        Layers { block, runs, costs, changes }
    }

    fn under(&self, set: usize) -> RecomputeCost {
        self.costs[&(set & self.changes)]
    }
}

/// Cost of a layer that recomputes a set of these modules.
fn cost_under(set: usize, site: &Site<'_>, times: &RecomputeTimes<'_, '_>, modules: &[&str]) -> RecomputeCost {
    let names = modules.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
    let names: Vec<String> = names.map(|(_, module)| module.to_string()).collect();
    // An empty list of names means the core of attention.
    let keep =
        if names.is_empty() { Keep::of_dropped(site, Dropped::default()) } else { Keep::selective(site, &names) };
    RecomputeCost { bytes: keep.bytes, seconds: times.of_stmts(&keep.recomputed(site)) }
}
