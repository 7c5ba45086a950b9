//! Some of the layers of a model.

use super::error::{ConfigError, positive};
use serde::Serialize;

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
        let found = simple.into_iter().find(|set| (0..layers).all(|layer| set.contains(layer) == is_in(layer)));
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
