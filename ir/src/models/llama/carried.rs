//! Values beside the stream that every layer takes. Some it passes on, and others are the same for all layers.

use super::config::LlamaConfig;
use super::depth::{self, NEXT, NUMBERS};
use super::indexer::CHOICE;
use super::layer_embedding::{FIRST, GAIN};
use super::layers::{KeyChoice, LayerKind};
use crate::models::draft::Draft;
use crate::types::Type;

/// The names of the values that layers pass on, as the embedding gives them.
pub(super) fn names(config: &LlamaConfig) -> Vec<&'static str> {
    let choice = config.passes_choice().then_some(CHOICE);
    choice.into_iter().chain(config.counts_layers().then_some(NUMBERS)).collect()
}

/// The names of the values that are the same for all layers, as the embedding gives them.
pub(super) fn constants(config: &LlamaConfig) -> &'static [&'static str] {
    if config.layer_embedding.is_some() { &[FIRST, GAIN] } else { &[] }
}

/// A value within a layer: its names as an argument and as a result, and its type.
pub(super) struct Carried {
    pub(super) taken: &'static str,
    pub(super) given: &'static str,
    pub(super) ty: Type,
}

/// The values that a kind of layer passes on.
pub(super) fn of_layer(config: &LlamaConfig, kind: &LayerKind<'_>, draft: &Draft) -> Vec<Carried> {
    let mut carried = Vec::new();
    if let Some(indexer) = config.indexer.filter(|indexer| indexer.passes()) {
        // A layer with an indexer passes its own on.
        let taken = if kind.choice == KeyChoice::Own { "choice_before" } else { CHOICE };
        carried.push(Carried { taken, given: CHOICE, ty: indexer.choice(draft) });
    }
    if config.counts_layers() {
        carried.push(Carried { taken: NUMBERS, given: NEXT, ty: depth::numbers(config) });
    }
    carried
}
