//! Values that every layer takes and passes on beside the stream.

use super::config::LlamaConfig;
use super::depth::{NEXT, NUMBER};
use super::indexer::CHOICE;
use super::layer_embedding::{FIRST, GAIN};
use super::layers::{KeyChoice, LayerKind, kinds};
use crate::models::draft::{Body, Draft, DraftError};
use crate::types::Type;

/// The names of these values, as the embedding gives them.
pub(super) fn names(config: &LlamaConfig) -> Vec<&'static str> {
    let choice = config.passes_choice().then_some(CHOICE);
    let number = config.counts_layers().then_some(NUMBER);
    let embedding: &[&str] = if config.layer_embedding.is_some() { &[FIRST, GAIN] } else { &[] };
    let keys = slots(config).into_iter().flatten();
    choice.into_iter().chain(number).chain(embedding.iter().copied()).chain(keys).collect()
}

/// Keys and values of layers without a window, and of layers with one.
const KEYS: [[&str; 2]; 2] = [["keys", "values"], ["local_keys", "local_values"]];

/// The names of keys and values for a kind of layer.
pub(super) fn keys(kind: &LayerKind<'_>) -> [&'static str; 2] {
    KEYS[usize::from(kind.window.is_some())]
}

/// The keys and values that layers pass on: those of the types of layers that take such.
fn slots(config: &LlamaConfig) -> Vec<[&'static str; 2]> {
    let has = |names: &[&str; 2]| kinds(config).any(|kind| kind.reuses && keys(&kind) == *names);
    KEYS.into_iter().filter(has).collect()
}

/// Keys and values in front of the first layer, which no layer reads.
pub(super) fn first_keys(config: &LlamaConfig, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
    for names in slots(config) {
        let Some(kind) = kinds(config).find(|kind| kind.reuses && keys(kind) == names) else { continue };
        for (name, dims) in names.into_iter().zip([kind.dims.keys, kind.dims.values]) {
            b.zeros(name, x, &format!("b s {dims}"))?;
        }
    }
    Ok(())
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
    for names in slots(config) {
        let of = kinds(config).find(|kind| kind.reuses && keys(kind) == names);
        let is_own = kind.attends() && !kind.reuses && keys(kind) == names;
        let types = of.map_or([""; 2], |of| [of.dims.keys, of.dims.values]);
        for ((name, dims), (before, own)) in
            names.into_iter().zip(types).zip([("keys_before", "k"), ("values_before", "v")])
        {
            // A layer with keys of its own passes these on.
            let (taken, given) = if is_own { (before, own) } else { (name, name) };
            carried.push(Carried { taken, given, ty: draft.ty(&format!("b s {dims}")) });
        }
    }
    carried
}
