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

/// Experts with the noise that a class has between norm and router in training.
pub(in crate::models) fn jittered(fields: &Fields, experts: Experts) -> Result<Experts, ConfigError> {
    Ok(Experts { jitter: fields.get("router_jitter_noise")?, ..experts })
}

/// Experts that sigmoids of each one's own logit choose, with a bias for the choice, whose weights add up to 1 (DeepSeek-V3).
pub(in crate::models) fn sigmoid(
    fields: &Fields,
    number: &'static str,
    size: &'static str,
) -> Result<Experts, ConfigError> {
    Ok(Experts { sigmoid: true, bias: true, ..softmax(fields, number, size)? })
}

/// The layers without experts, as `mlp_layer_types` lists them; where it does not, they are the first `dense_first`. `None` if no
/// layer has experts.
pub(in crate::models) fn dense_types(
    fields: &Fields,
    layers: u32,
    dense_first: u32,
) -> Result<Option<LayerSet>, ConfigError> {
    const KEY: &str = "mlp_layer_types";
    let Some(types): Option<Vec<String>> = fields.optional(KEY)? else {
        return dense(layers, KEY, |layer| layer < dense_first);
    };
    if types.len() != layers as usize {
        let why = format!("`{KEY}` has {} types, but `num_hidden_layers` is {layers}", types.len());
        return Err(ConfigError::Contradiction(why));
    }
    if let Some(kind) = types.iter().find(|kind| !matches!(kind.as_str(), "dense" | "sparse")) {
        return Err(unsupported(KEY, format!("{kind} is not supported, only dense and sparse")));
    }
    dense(layers, KEY, |layer| types[layer as usize] == "dense")
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
