//! The best choices of values to be made again, over all kinds of layers of a model.

use super::site::Site;
use super::tensors;
use crate::machine::Machine;
use ir::entity::EntityRef;
use ir::goal::Layout;
use ir::graph::{Block, Model};
use ir::recompute::{is_layer, is_module, of_value};
use std::collections::BTreeSet;

/// Values that are made again, such that no others keep less and take less time.
#[derive(Clone, PartialEq, Debug)]
pub struct Again {
    /// Their names, as a layout has them after `selective:`; none: nothing is made again.
    pub names: Vec<String>,
    /// Bytes that layers keep from the forward to the backward.
    pub bytes: f64,
    /// Seconds that it takes to make them.
    pub seconds: f64,
}

/// Values of some kinds of layers.
#[derive(Clone)]
struct Chosen {
    /// By the place of a kind and the name of a value.
    values: BTreeSet<(usize, String)>,
    bytes: f64,
    seconds: f64,
}

/// The best choices for so many runs of each block of a planned model, per micro-batch, from the fewest seconds to the fewest
/// bytes; blocks that are no layers count for nothing. The layout's own recomputation does not matter.
pub fn frontier(model: &Model, runs: &[f64], layout: &Layout, machine: &Machine<'_>) -> Vec<Again> {
    let kinds = model.blocks.iter().filter(|(id, block)| is_layer(block) && runs[id.index()] > 0.0);
    let kinds: Vec<(&Block, f64)> = kinds.map(|(id, block)| (block, runs[id.index()])).collect();
    let mut all = vec![Chosen { values: BTreeSet::new(), bytes: 0.0, seconds: 0.0 }];
    for (kind, (block, runs)) in kinds.iter().enumerate() {
        let found = tensors::frontier(&Site::new(model, block, layout, machine));
        let with = |chosen: &Chosen| {
            let of = |(point, names): &(crate::knapsack::Point, Vec<String>)| {
                let named = names.iter().map(|name| (kind, name.clone()));
                Chosen {
                    values: chosen.values.iter().cloned().chain(named).collect(),
                    bytes: chosen.bytes + runs * point.bytes,
                    seconds: chosen.seconds + runs * point.seconds,
                }
            };
            found.iter().map(of).collect::<Vec<Chosen>>()
        };
        all = pruned(all.iter().flat_map(with).collect());
    }
    let blocks: Vec<&Block> = kinds.iter().map(|(block, _)| *block).collect();
    let again = |chosen: Chosen| Again { names: names(&blocks, &chosen.values), bytes: chosen.bytes, seconds: chosen.seconds };
    all.into_iter().map(again).collect()
}

/// What nothing is better than, from the fewest seconds on.
fn pruned(mut all: Vec<Chosen>) -> Vec<Chosen> {
    all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.bytes.total_cmp(&b.bytes)));
    let mut least = f64::INFINITY;
    all.retain(|chosen| {
        let is_better = chosen.bytes < least;
        least = least.min(chosen.bytes);
        is_better
    });
    all
}

/// The names of values in the order of the forward: alone where all kinds that have it make it again and it is no module's,
/// else with the block's.
fn names(blocks: &[&Block], values: &BTreeSet<(usize, String)>) -> Vec<String> {
    let mut ordered: Vec<&(usize, String)> = values.iter().collect();
    ordered.sort_by_key(|(kind, name)| (*kind, of_value(blocks[*kind], name)));
    let mut names: Vec<String> = Vec::new();
    for (kind, name) in ordered {
        let everywhere = blocks.iter().enumerate().all(|(other, block)| {
            of_value(block, name).is_none() || values.contains(&(other, name.clone()))
        });
        let said = if everywhere && !is_module(name) { name.clone() } else { format!("{}.{name}", blocks[*kind].name) };
        if !names.contains(&said) {
            names.push(said);
        }
    }
    names
}
