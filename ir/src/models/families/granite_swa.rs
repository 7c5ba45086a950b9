//! Granite with windows and sinks.

use super::granite;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "granite_swa",
    class: "GraniteSWAForCausalLM",
    keys: Keys { class: "GraniteSWAConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, NET, SINKS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "100352", VOCABULARY),
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["intermediate_size"], "8192", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["num_attention_heads"], "20", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "8192", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["embedding_multiplier"], "1.0", "factor of embeddings"),
    Key::read(&["logits_scaling"], "1.0", "divisor of logits"),
    Key::read(&["residual_multiplier"], "1.0", "factor of what branches add"),
    Key::read(&["attention_multiplier"], "1.0", "factor of scores"),
    Key::read(&["sliding_window"], "128", WINDOW),
    LAYER_TYPES,
    Key::read(&["layer_rope_theta"], "null", "base of the rotary frequencies, by layer: one for all"),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

/// A sink of each head.
pub(super) const SINKS: &[HubTensor] = &[HubTensor::vector("self_attn.sinks", &["sink"])];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(LlamaConfig { net_bias: fields.get("mlp_bias")?, ..windowed(fields)? }.into())
}

/// Reads a Granite of which each fourth layer, from the first on, sees all tokens.
pub(super) fn windowed(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    let base = granite::scaled(fields)?;
    one_base(fields, base.rotation.theta)?;
    let window = Limited::sliding(fields, base.layers)?.read(fields, |layer| layer.is_multiple_of(4))?;
    Ok(LlamaConfig { window, sinks: Sinks::All, ..base })
}

/// Bases of the rotary frequencies of all layers, which must be one.
fn one_base(fields: &Fields, theta: f64) -> Result<(), ConfigError> {
    let bases: Vec<f64> = fields.optional("layer_rope_theta")?.unwrap_or_default();
    match bases.iter().find(|base| **base != theta) {
        Some(base) => {
            Err(unsupported("layer_rope_theta", format!("{base} is not supported, only that of all layers, {theta}")))
        }
        None => Ok(()),
    }
}
