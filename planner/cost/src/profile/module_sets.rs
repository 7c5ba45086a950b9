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
use ir::graph::{Model, SectionKind};
use ir::ids::BlockId;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use transforms::recompute::is_layer;

/// The layers of a kind, with the cost of an instance under each set of modules that changes this cost.
struct Layers {
    block: BlockId,
    /// Number of instances.
    runs: f64,
    /// Cost of an instance under each set of the modules in `changes`, by their bits; that of other sets is not used.
    costs: Vec<RecomputeCost>,
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
        let changes: usize = (0..modules.len()).map(|at| 1 << at).filter(|&set| priced.cost(set) != none).sum();
        let mut costs = vec![none; 1 << modules.len()];
        for set in (1..1usize << modules.len()).filter(|set| set & !changes == 0) {
            costs[set] = priced.cost(set);
        }
        Layers { block, runs, costs, changes }
    }

    fn under(&self, set: usize) -> RecomputeCost {
        self.costs[set & self.changes]
    }
}

/// Costs of a layer under sets of modules. Sets that drop the same are priced once: modules may contain others.
struct PricedSets<'s, 'a> {
    site: &'s Site<'a>,
    times: RecomputeTimes<'s, 'a>,
    /// Values that each module drops.
    modules: Vec<DroppedBits>,
    /// Costs by what is dropped.
    known: FxHashMap<DroppedBits, RecomputeCost>,
}

/// Values that some modules drop: the bits of the block's values, then those of its statements that are recomputed in any case.
#[derive(Clone, PartialEq, Eq, Hash)]
struct DroppedBits {
    bits: SmallVec<[u64; 8]>,
    /// True if a list of saved ops decides some of the values.
    has_ops: bool,
}

impl DroppedBits {
    /// No bits, of a layer with these numbers of values and statements.
    fn none(site: &Site<'_>) -> DroppedBits {
        let number = site.block().values.len() + site.block()[SectionKind::F].stmts.len();
        DroppedBits { bits: SmallVec::from_elem(0, number.div_ceil(BITS)), has_ops: false }
    }

    fn of(site: &Site<'_>, module: &str) -> DroppedBits {
        let Dropped { values, recomputed } = dropped(site, &[module.to_string()]);
        let first = site.block().values.len();
        let mut all = DroppedBits { has_ops: module == OPS, ..DroppedBits::none(site) };
        for at in values.iter().map(EntityRef::index).chain(recomputed.into_iter().map(|at| first + at)) {
            all.bits[at / BITS] |= 1 << (at % BITS);
        }
        all
    }

    fn add(&mut self, other: &DroppedBits) {
        self.bits.iter_mut().zip(&other.bits).for_each(|(bits, more)| *bits |= more);
        self.has_ops |= other.has_ops;
    }

    fn dropped(&self, site: &Site<'_>) -> Dropped {
        let (values, stmts) = (site.block().values.len(), site.block()[SectionKind::F].stmts.len());
        Dropped {
            values: ir::saved::set(site.block().values.keys().filter(|value| self.has(value.index()))),
            recomputed: (0..stmts).filter(|at| self.has(values + at)).collect(),
        }
    }

    fn has(&self, at: usize) -> bool {
        self.bits[at / BITS] >> (at % BITS) & 1 == 1
    }
}

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

impl<'s, 'a> PricedSets<'s, 'a> {
    fn of(site: &'s Site<'a>, modules: &[&str]) -> PricedSets<'s, 'a> {
        let modules = modules.iter().map(|module| DroppedBits::of(site, module)).collect();
        PricedSets { site, times: RecomputeTimes::of(site), modules, known: FxHashMap::default() }
    }

    /// Cost of the layer if it recomputes a set of the modules.
    fn cost(&mut self, set: usize) -> RecomputeCost {
        let mut all = DroppedBits::none(self.site);
        self.modules.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).for_each(|(_, module)| all.add(module));
        if let Some(cost) = self.known.get(&all) {
            return *cost;
        }
        let keep = Keep::without(self.site, all.dropped(self.site), all.has_ops);
        let cost = RecomputeCost { bytes: keep.bytes, seconds: self.times.of_stmts(&keep.recomputed(self.site)) };
        self.known.insert(all, cost);
        cost
    }
}
