//! The best choices of values to be made again, over all kinds of layers of a model.

use super::site::Site;
use super::tensors::{self, STEPS};
use crate::knapsack::{Point, prune};
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

/// A choice for each of some kinds of layers, by its place.
struct Chosen {
    points: Vec<usize>,
    bytes: f64,
    seconds: f64,
}

/// The best choices for so many runs of each block of a planned model, per micro-batch, from the fewest seconds to the fewest
/// bytes; blocks that are no layers count for nothing. The layout's own recomputation does not matter.
pub fn frontier(model: &Model, runs: &[f64], layout: &Layout, machine: &Machine<'_>) -> Vec<Again> {
    let kinds = model.blocks.iter().filter(|(id, block)| is_layer(block) && runs[id.index()] > 0.0);
    let kinds: Vec<(&Block, f64)> = kinds.map(|(id, block)| (block, runs[id.index()])).collect();
    let of = |&(block, _): &(&Block, f64)| tensors::frontier(&Site::new(model, block, layout, machine));
    let found: Vec<Vec<(Point, Vec<String>)>> = kinds.iter().map(of).collect();
    let mut all = vec![Chosen { points: Vec::new(), bytes: 0.0, seconds: 0.0 }];
    for (points, (_, runs)) in found.iter().zip(&kinds) {
        let mut pairs = Vec::with_capacity(all.len() * points.len());
        for (before, chosen) in all.iter().enumerate() {
            let sums =
                points.iter().map(|(it, _)| [chosen.bytes + runs * it.bytes, chosen.seconds + runs * it.seconds]);
            pairs.extend(sums.enumerate().map(|(at, figures)| (before, at, figures)));
        }
        let most = pairs.iter().map(|(.., [bytes, _])| *bytes).fold(0.0, f64::max);
        prune(&mut pairs, most / STEPS, |(.., figures)| *figures);
        let chosen = |(before, at, [bytes, seconds]): (usize, usize, [f64; 2])| {
            let points = all[before].points.iter().copied().chain([at]).collect();
            Chosen { points, bytes, seconds }
        };
        all = pairs.into_iter().map(chosen).collect();
    }
    let blocks: Vec<&Block> = kinds.iter().map(|(block, _)| *block).collect();
    let again = |chosen: Chosen| {
        let points = chosen.points.iter().zip(&found).map(|(&at, found)| &found[at].1);
        let values = points.enumerate().flat_map(|(kind, names)| names.iter().map(move |name| (kind, name.as_str())));
        Again { names: names(&blocks, &values.collect()), bytes: chosen.bytes, seconds: chosen.seconds }
    };
    all.into_iter().map(again).collect()
}

/// The names of values in the order of the forward: alone where all kinds that have it make it again and it is no module's,
/// else with the block's.
fn names(blocks: &[&Block], values: &BTreeSet<(usize, &str)>) -> Vec<String> {
    let mut ordered: Vec<&(usize, &str)> = values.iter().collect();
    ordered.sort_by_key(|(kind, name)| (*kind, of_value(blocks[*kind], name)));
    let mut names: Vec<String> = Vec::new();
    for &(kind, name) in ordered {
        let everywhere = blocks
            .iter()
            .enumerate()
            .all(|(other, block)| of_value(block, name).is_none() || values.contains(&(other, name)));
        let said =
            if everywhere && !is_module(name) { name.to_string() } else { format!("{}.{name}", blocks[kind].name) };
        if !names.contains(&said) {
            names.push(said);
        }
    }
    names
}
