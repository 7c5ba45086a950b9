//! Pareto-optimal sets of modules to recompute, for stacks that cannot recompute single values. A set applies to all layers:
//! no framework chooses it by kind of layer.

use super::frontier::{Frontier, Kind, RecomputeChoice};
use super::keep::{Keep, OPS};
use super::modules::{Dropped, dropped};
use super::site::Site;
use super::tensors::RecomputeTimes;
use crate::block_options::BlockOptions;
use crate::platform::Platform;
use crate::quantities::RecomputeCost;
use ir::entity::EntityRef;
use ir::graph::Model;
use ir::ids::{BlockId, Value};
use std::collections::{BTreeSet, HashMap};
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
    let least = suffix_minima(sets, |set| sum(layers, set).seconds);
    let by_block = layers.iter().map(|kind| (kind.block, suffix_minima(sets, |set| kind.under(set).seconds)));
    let by_block = by_block.collect();
    let (mut best, mut names) = (Vec::with_capacity(sets.len()), Vec::with_capacity(sets.len()));
    for (at, &(set, RecomputeCost { bytes, seconds })) in sets.iter().enumerate() {
        best.push(RecomputeChoice { choices: vec![at], bytes, seconds, least: least[at] });
        let named = modules.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        names.push(named.map(|(_, module)| module.to_string()).collect());
    }
    let bytes = best.iter().map(|choice| choice.bytes).collect();
    let seconds = best.iter().map(|choice| choice.seconds).collect();
    let kind = Kind { block: layers[0].block, runs: 1.0, bytes, seconds, least };
    Frontier::of_sets(kind, names, by_block, best)
}

/// Least seconds of each set and of all sets that save less.
fn suffix_minima(sets: &[(usize, RecomputeCost)], seconds: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut minima = Vec::with_capacity(sets.len());
    let mut least = f64::INFINITY;
    for (set, _) in sets.iter().rev() {
        least = least.min(seconds(*set));
        minima.push(least);
    }
    minima.reverse();
    minima
}

impl Layers {
    fn of(block: BlockId, runs: f64, site: &Site<'_>, modules: &[&str]) -> Layers {
        let mut priced = PricedSets::of(site, modules);
        let none = priced.cost(0);
        let mut costs = HashMap::from([(0, none)]);
        let mut changes = 0;
        for set in (0..modules.len()).map(|at| 1 << at) {
            let alone = priced.cost(set);
            if alone != none {
                changes |= set;
                costs.insert(set, alone);
            }
        }
        for set in (0..1usize << modules.len()).filter(|set| set & !changes == 0) {
            costs.entry(set).or_insert_with(|| priced.cost(set));
        }
        Layers { block, runs, costs, changes }
    }

    fn under(&self, set: usize) -> RecomputeCost {
        self.costs[&(set & self.changes)]
    }
}

/// Costs of a layer under sets of modules. Sets that drop the same are priced once: modules may contain others.
struct PricedSets<'s, 'a> {
    site: &'s Site<'a>,
    times: RecomputeTimes<'s, 'a>,
    /// The values that each module drops.
    modules: Vec<DroppedModule>,
    /// Costs by what is dropped.
    known: HashMap<DroppedSet, RecomputeCost>,
}

/// The values that a module drops.
struct DroppedModule {
    values: Vec<Value>,
    recomputed: Vec<usize>,
    /// True if the module is all ops that a list of saved ones lacks.
    is_ops: bool,
}

/// The values that a set of modules drops.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct DroppedSet {
    values: BTreeSet<Value>,
    recomputed: BTreeSet<usize>,
    has_ops: bool,
}

impl<'s, 'a> PricedSets<'s, 'a> {
    fn of(site: &'s Site<'a>, modules: &[&str]) -> PricedSets<'s, 'a> {
        let modules = modules.iter().map(|module| {
            let Dropped { values, recomputed } = dropped(site, &[module.to_string()]);
            let (values, recomputed) = (values.iter().collect(), recomputed.into_iter().collect());
            DroppedModule { values, recomputed, is_ops: *module == OPS }
        });
        PricedSets { site, times: RecomputeTimes::of(site), modules: modules.collect(), known: HashMap::new() }
    }

    /// Cost of the layer if it recomputes a set of the modules.
    fn cost(&mut self, set: usize) -> RecomputeCost {
        let dropped = self.dropped(set);
        if let Some(cost) = self.known.get(&dropped) {
            return *cost;
        }
        let values = ir::saved::set(dropped.values.iter().copied());
        let all = Dropped { values, recomputed: dropped.recomputed.clone() };
        let keep = Keep::without(self.site, all, dropped.has_ops);
        let cost = RecomputeCost { bytes: keep.bytes, seconds: self.times.of_stmts(&keep.recomputed(self.site)) };
        self.known.insert(dropped, cost);
        cost
    }

    fn dropped(&self, set: usize) -> DroppedSet {
        let mut all = DroppedSet::default();
        let modules = self.modules.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        for (_, DroppedModule { values, recomputed, is_ops }) in modules {
            all.values.extend(values);
            all.recomputed.extend(recomputed);
            all.has_ops |= is_ops;
        }
        all
    }
}
