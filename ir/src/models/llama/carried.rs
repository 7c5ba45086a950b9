//! Values that every layer takes and passes on beside the stream.

use super::config::LlamaConfig;
use super::depth::{NEXT, NUMBER};
use super::indexer::CHOICE;
use super::layer_embedding::{FIRST, GAIN};
use super::layers::{KeyChoice, LayerKind};
use crate::models::draft::Draft;
use crate::types::Type;

/// The names of these values, as the embedding gives them.
pub(super) fn names(config: &LlamaConfig) -> Vec<&'static str> {
    let choice = config.passes_choice().then_some(CHOICE);
    let number = config.counts_layers().then_some(NUMBER);
    let embedding: &[&str] = if config.layer_embedding.is_some() { &[FIRST, GAIN] } else { &[] };
    choice.into_iter().chain(number).chain(embedding.iter().copied()).collect()
}

/// A value within a layer: its names as an argument and as a result, and its type.
pub(super) struct Carried {
    pub(super) taken: &'static str,
    pub(super) given: &'static str,
    pub(super) ty: Type,
}

/// The values within a kind of layer.
pub(super) fn of_layer(config: &LlamaConfig, kind: &LayerKind<'_>, draft: &Draft) -> Vec<Carried> {
    let mut carried = Vec::new();
    if let Some(indexer) = config.indexer.filter(|indexer| indexer.passes()) {
        // A layer with an indexer passes its own on.
        let taken = if kind.choice == KeyChoice::Own { "choice_before" } else { CHOICE };
        carried.push(Carried { taken, given: CHOICE, ty: indexer.choice(draft) });
    }
    if config.counts_layers() {
        carried.push(Carried { taken: NUMBER, given: NEXT, ty: draft.wide("") });
    }
    if config.layer_embedding.is_some() {
        carried.push(Carried { taken: FIRST, given: FIRST, ty: draft.ty("b s h") });
        carried.push(Carried { taken: GAIN, given: GAIN, ty: draft.ty("dp") });
    }
    carried
}
