//! The parameters of attention to another sequence, which a decoder alone does not read.

use super::config::{Cross, LlamaConfig};
use crate::models::draft::Weight;

/// The parameters of a layer: products and norm.
pub(super) fn weights(config: &LlamaConfig, cross: Cross) -> Vec<Weight> {
    let from = if cross.hidden == config.hidden { "h" } else { "x" };
    let mut weights = vec![
        Weight::normal("cross_wq", "h g r d", config.deviation),
        Weight::normal("cross_wk", &format!("{from} g d"), config.deviation),
        Weight::normal("cross_wv", &format!("{from} g d"), config.deviation),
        Weight::normal("cross_wo", "g r d h", config.deviation),
    ];
    let biases = [("cross_bq", "g r d"), ("cross_bk", "g d"), ("cross_bv", "g d")];
    let biases = biases.into_iter().filter(|(name, _)| config.qkv_bias && !(config.plain_keys && *name == "cross_bk"));
    weights.extend(biases.map(|(name, dims)| Weight::constant(name, dims, 0.0)));
    weights.extend(config.out_bias.then(|| Weight::constant("cross_bo", "h", 0.0)));
    weights.extend(config.norm.weights("cross_norm", "h"));
    weights.into_iter().map(Weight::frozen).collect()
}
