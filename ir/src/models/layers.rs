//! The kinds of a model's layers, and their order.

use super::config::{ConfigError, positive};
use super::experts::Experts;
use super::llama::LlamaConfig;
use super::rotation::Rotation;
use crate::ops::Scaling;
use serde::Serialize;
use std::ops::Range;

/// Some layers of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum LayerSet {
    /// None.
    None,
    /// The first ones, as many as this.
    First(u32),
    /// Each n-th layer: with 2 the second, the fourth and so on.
    Every(u32),
    /// All but each n-th layer.
    AllBut(u32),
    /// Bit i stands for layer i, of at most 128.
    Listed(u128),
}

impl LayerSet {
    /// True if a layer, from 0, is one of them.
    pub fn contains(self, layer: u32) -> bool {
        match self {
            LayerSet::None => false,
            LayerSet::First(count) => layer < count,
            LayerSet::Every(n) => (layer + 1).is_multiple_of(n),
            LayerSet::AllBut(n) => !(layer + 1).is_multiple_of(n),
            LayerSet::Listed(bits) => bits.checked_shr(layer).is_some_and(|bits| bits & 1 == 1),
        }
    }

    /// The simplest set of these of `layers` layers; `None` if they follow no rule, and are more than 128.
    pub(super) fn of(layers: u32, is_in: impl Fn(u32) -> bool) -> Option<LayerSet> {
        let first = (0..layers).take_while(|&layer| is_in(layer)).count() as u32;
        let inner = (0..layers).find(|&layer| is_in(layer)).map_or(0, |layer| layer + 1);
        let outer = (0..layers).find(|&layer| !is_in(layer)).map_or(0, |layer| layer + 1);
        let simple = [LayerSet::None, LayerSet::First(first), LayerSet::Every(inner), LayerSet::AllBut(outer)];
        let is_same = |set: &LayerSet| (0..layers).all(|layer| set.contains(layer) == is_in(layer));
        let found = simple.into_iter().find(is_same);
        found.or_else(|| (layers <= u128::BITS).then(|| LayerSet::Listed(bits(layers, is_in))))
    }

    /// The number of them among the first `layers` layers.
    pub(super) fn count(self, layers: u32) -> u32 {
        (0..layers).filter(|&layer| self.contains(layer)).count() as u32
    }
}

fn bits(layers: u32, is_in: impl Fn(u32) -> bool) -> u128 {
    (0..layers).filter(|&layer| is_in(layer)).fold(0, |bits, layer| bits | 1 << layer)
}

/// A limit of how far back queries see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Window {
    /// The positions that a query sees, its own and those before it; or those of a chunk.
    pub tokens: u64,
    /// Sequences are cut into chunks, and a query sees those positions of its own chunk that are not behind it (Llama 4). Without
    /// chunks the window slides with the query.
    pub chunked: bool,
    /// The layers without the window.
    pub full: LayerSet,
}

impl Window {
    /// One of all layers.
    pub const fn of_all(tokens: u64) -> Window {
        Window { tokens, chunked: false, full: LayerSet::None }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        positive(if self.chunked { "attention_chunk_size" } else { "sliding_window" }, self.tokens)
    }
}

/// The input of the length of each token's sequence, that is one more than its largest position. A model has it if its
/// rotations depend on it.
pub(super) const LENGTHS: &str = "len";

/// A kind of layer: a block of the model.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct LayerKind<'a> {
    /// The name of the block, and of the array of its parameters.
    pub(super) name: &'static str,
    /// The experts in place of a feed-forward net, if any.
    pub(super) experts: Option<&'a Experts>,
    /// The window of attention, if any.
    pub(super) window: Option<Window>,
    /// How positions turn queries and keys; none: they have no positions.
    pub(super) rotation: Option<&'a Rotation>,
}

impl LayerKind<'_> {
    /// The inputs of its block.
    pub(super) fn inputs(&self) -> &'static [&'static str] {
        let scaling = self.rotation.and_then(|rotation| rotation.scaling.as_ref());
        if scaling.is_some_and(Scaling::reads_lengths) { &["pos", "seg", LENGTHS] } else { &["pos", "seg"] }
    }
}

/// The kind of each layer.
///
/// Layers with experts are called `layer`, and those without them `dense`; without any experts all are called `layer`. Where
/// only some layers have a window, these are called `local` and `local_dense`. Where only some layers of the same window have no
/// positions, the names of these have `nope` in them.
pub(super) fn kinds(config: &LlamaConfig) -> impl Iterator<Item = LayerKind<'_>> {
    let window_of = |layer: u32| config.window.filter(|window| !window.full.contains(layer));
    let mixed = config.window.is_some_and(|window| (1..config.layers).contains(&window.full.count(config.layers)));
    // The numbers of layers with and without positions, by whether they have a window.
    let mut turns = [[0_u32; 2]; 2];
    for layer in 0..config.layers {
        turns[usize::from(window_of(layer).is_some())][usize::from(config.nope.contains(layer))] += 1;
    }
    (0..config.layers).map(move |layer| {
        let experts = config.experts.as_ref().filter(|experts| !experts.dense.contains(layer));
        let (window, nope) = (window_of(layer), config.nope.contains(layer));
        let local = config.local_rotation.as_ref().filter(|_| window.is_some());
        let rotation = (!nope).then_some(local.unwrap_or(&config.rotation));
        let is_dense = config.experts.is_some() && experts.is_none();
        let differs = nope && turns[usize::from(window.is_some())].iter().all(|&count| count > 0);
        let name = match (mixed && window.is_some(), differs, is_dense) {
            (false, false, false) => "layer",
            (false, false, true) => "dense",
            (false, true, false) => "nope",
            (false, true, true) => "nope_dense",
            (true, false, false) => "local",
            (true, false, true) => "local_dense",
            (true, true, false) => "local_nope",
            (true, true, true) => "local_nope_dense",
        };
        LayerKind { name, experts, window, rotation }
    })
}

/// Consecutive layers of one kind, and their places in the array of the kind's parameters.
pub(super) fn runs(config: &LlamaConfig) -> Vec<(LayerKind<'_>, Range<u32>)> {
    let mut runs: Vec<(LayerKind<'_>, Range<u32>)> = Vec::new();
    for kind in kinds(config) {
        match runs.last_mut().filter(|(last, _)| last.name == kind.name) {
            Some((_, range)) => range.end += 1,
            None => {
                let before = runs.iter().rev().find(|(known, _)| known.name == kind.name);
                let start = before.map_or(0, |(_, range)| range.end);
                runs.push((kind, start..start + 1));
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_their_simplest_form() {
        let of = |layers: &[u32], in_all: u32| LayerSet::of(in_all, |layer| layers.contains(&layer)).unwrap();
        assert_eq!(of(&[], 4), LayerSet::None);
        assert_eq!(of(&[0, 1], 4), LayerSet::First(2));
        assert_eq!(of(&[0, 1, 2, 3], 4), LayerSet::First(4));
        assert_eq!(of(&[1, 3], 5), LayerSet::Every(2));
        assert_eq!(of(&[0, 1, 3, 4, 6], 7), LayerSet::AllBut(3));
        assert_eq!(of(&[0, 2, 3], 5), LayerSet::Listed(0b1101));
        assert_eq!(LayerSet::of(200, |layer| layer % 7 == 3), None);
        assert_eq!(LayerSet::of(200, |layer| layer % 7 == 6), Some(LayerSet::Every(7)));
    }

    #[test]
    fn a_set_contains_what_it_was_made_of() {
        let listed = [true, false, false, true, false, true, true];
        let set = LayerSet::of(7, |layer| listed[layer as usize]).unwrap();
        assert!((0..7).all(|layer| set.contains(layer) == listed[layer as usize]) && !set.contains(500));
        assert_eq!(set.count(7), 4);
    }
}
