//! The layers that have positions.

use super::mixers::Typed;
use crate::models::error::{ConfigError, invalid, positive, unsupported};
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

/// True if the layers of a type have positions: an object under the name of the type states these, and `null` that there are none.
///
/// # Errors
/// There are such layers, and nothing is stated of them.
pub(in crate::models) fn turn(fields: &Fields, kind: &str, is_there: bool) -> Result<bool, ConfigError> {
    const KEY: &str = "rope_parameters";
    let stated = fields.object("rope_scaling")?.or(fields.object(KEY)?);
    match stated.and_then(|types| types.get(kind)) {
        None if is_there => Err(invalid(KEY, format!("has no `{kind}`: the positions of these layers, or null"))),
        found => Ok(found.is_some_and(|found| !found.is_null())),
    }
}

/// Checks that all layers with attention have positions, where a file states those of each type.
///
/// # Errors
/// A type of layers has none.
pub(in crate::models) fn all_turn(fields: &Fields, layers: u32, typed: &Typed) -> Result<(), ConfigError> {
    if fields.object("rope_parameters")?.is_none() {
        return Ok(());
    }
    let is_there = [typed.has_full(layers), typed.window.is_some()];
    for (kind, is_there) in ["full_attention", "sliding_attention"].into_iter().zip(is_there) {
        if is_there && !turn(fields, kind, is_there)? {
            return Err(unsupported("rope_parameters", format!("`{kind}` without positions is not supported")));
        }
    }
    Ok(())
}
