//! Experts that several families state alike.

use crate::models::error::{ConfigError, unsupported};
use crate::models::experts::Experts;
use crate::models::fields::Fields;
use crate::models::layer_set::LayerSet;

/// Experts of Mixtral's kind, by the keys of their number and size.
pub(in crate::models) fn softmax(
    fields: &Fields,
    number: &'static str,
    size: &'static str,
) -> Result<Experts, ConfigError> {
    let experts = Experts::softmax(fields.get(number)?, fields.get("num_experts_per_tok")?, fields.get(size)?);
    let (capacity, group) = (fields.optional("capacity_factor")?, fields.optional("routing_group")?);
    Ok(Experts { capacity, group, ..experts })
}

/// The layers without experts; `None` if no layer has experts. `key` lists them where they follow no rule.
pub(in crate::models) fn dense(
    layers: u32,
    key: &str,
    is_dense: impl Fn(u32) -> bool,
) -> Result<Option<LayerSet>, ConfigError> {
    match LayerSet::of(layers, is_dense) {
        Some(dense) => Ok((dense.count(layers) < layers).then_some(dense)),
        None => Err(unsupported(key, "of more than 128 layers they must follow a rule".to_string())),
    }
}
