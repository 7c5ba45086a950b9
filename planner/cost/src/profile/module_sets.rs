//! The best sets of modules to be recomputed, where a stack recomputes no single values. A set is of all layers: no framework
//! chooses it by kind.

use super::frontier::{Frontier, Kind, RecomputeChoice};
use super::keep::Keep;
use super::site::Site;
use super::tensors::Prices;
use crate::block_options::BlockOptions;
use crate::platform::Platform;
use ir::entity::EntityRef;
use ir::graph::Model;
use ir::ids::BlockId;
use ir::options::Recompute;
use std::collections::HashMap;
use transforms::recompute::is_layer;

/// Figures of a block instance under a set: bytes that it saves, and seconds of recomputation.
type Figures = [f64; 2];

/// The layers of a kind, and what they take under each set of modules that changes something for them.
struct Layers {
    block: BlockId,
    runs: f64,
    /// By the bits of the modules that change something.
    figures: HashMap<usize, Figures>,
    changes: usize,
}

/// The sets of these modules that no other is better than in bytes and in seconds, for so many runs of each block.
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
    let mut sets: Vec<(usize, Figures)> = all.map(|set| (set, sum(&layers, set))).collect();
    sets.sort_by(|(_, a), (_, b)| a[1].total_cmp(&b[1]).then(a[0].total_cmp(&b[0])));
    let mut least = f64::INFINITY;
    sets.retain(|(_, [bytes, _])| {
        let is_less = *bytes < least;
        least = least.min(*bytes);
        is_less
    });
    of_sets(&layers, &sets, modules)
}

fn sum(layers: &[Layers], set: usize) -> Figures {
    layers.iter().fold([0.0; 2], |sum, kind| {
        let [bytes, seconds] = kind.under(set);
        [sum[0] + kind.runs * bytes, sum[1] + kind.runs * seconds]
    })
}

/// The sets as choices, the fastest first.
fn of_sets(layers: &[Layers], sets: &[(usize, Figures)], modules: &[&str]) -> Frontier {
    // What a set and all that keep less take at least.
    let suffix = |of: &dyn Fn(usize) -> f64| -> Vec<f64> {
        let mut least = f64::INFINITY;
        let mut of_more = |set: usize| {
            least = least.min(of(set));
            least
        };
        let mut figures: Vec<f64> = sets.iter().rev().map(|(set, _)| of_more(*set)).collect();
        figures.reverse();
        figures
    };
    let least = suffix(&|set| sum(layers, set)[1]);
    let by_block = layers.iter().map(|kind| (kind.block, suffix(&|set| kind.under(set)[1]))).collect();
    let names = |set: usize| {
        let named = modules.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        named.map(|(_, module)| module.to_string()).collect()
    };
    let again = |(at, &(_, [bytes, seconds])): (usize, &(usize, Figures))| RecomputeChoice {
        choices: vec![at],
        bytes,
        seconds,
        least: least[at],
    };
    let best: Vec<RecomputeChoice> = sets.iter().enumerate().map(again).collect();
    let of = |figure: fn(&RecomputeChoice) -> f64| best.iter().map(figure).collect();
    let kind =
        Kind { block: layers[0].block, runs: 1.0, bytes: of(|it| it.bytes), seconds: of(|it| it.seconds), least };
    Frontier::of_sets(kind, sets.iter().map(|(set, _)| names(*set)).collect(), by_block, best)
}

impl Layers {
    fn of(block: BlockId, runs: f64, site: &Site<'_>, modules: &[&str]) -> Layers {
        let prices = Prices::of(site);
        let figures = |set: usize| {
            let names = modules.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
            let names: Vec<String> = names.map(|(_, module)| module.to_string()).collect();
            // An empty list of names means the core of attention.
            let recompute = if names.is_empty() { Recompute::None } else { Recompute::Selective(names) };
            let keep = Keep::under(site, &recompute);
            [keep.bytes, prices.of_stmts(&keep.again(site))]
        };
        let none = figures(0);
        let is_change = |at: &usize| figures(1 << at) != none;
        let changes = (0..modules.len()).filter(is_change).fold(0, |bits, at| bits | 1 << at);
        let sets = (0..1usize << modules.len()).filter(|set| set & !changes == 0);
        Layers { block, runs, figures: sets.map(|set| (set, figures(set))).collect(), changes }
    }

    fn under(&self, set: usize) -> Figures {
        self.figures[&(set & self.changes)]
    }
}
