//! Layers without positions.

use crate::models::error::{ConfigError, positive, unsupported};
use crate::models::fields::Fields;
use crate::models::layer_set::LayerSet;

/// The layers whose queries and keys have no positions: those that `stated` has a 0 for, else one in `no_rope_layer_interval`.
pub(in crate::models) fn absent(
    fields: &Fields,
    layers: u32,
    stated: Option<Vec<u8>>,
) -> Result<LayerSet, ConfigError> {
    if let Some(list) = stated.as_ref().filter(|list| list.len() < layers as usize) {
        let why = format!("`no_rope_layers` has {} numbers, but `num_hidden_layers` is {layers}", list.len());
        return Err(ConfigError::Contradiction(why));
    }
    let every: u32 = fields.get("no_rope_layer_interval")?;
    positive("no_rope_layer_interval", every.into())?;
    let set = match &stated {
        Some(list) => LayerSet::of(layers, |layer| list[layer as usize] == 0),
        None => LayerSet::of(layers, |layer| (layer + 1).is_multiple_of(every)),
    };
    set.ok_or_else(|| unsupported("no_rope_layers", "of more than 128 layers they must follow a rule".to_string()))
}
