//! Granite: a Llama with factors of embeddings, branches, scores and logits.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "granite",
    class: "GraniteForCausalLM",
    keys: Keys { class: "GraniteConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: USUAL,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "11008", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["embedding_multiplier"], "1.0", "factor of embeddings"),
    Key::read(&["logits_scaling"], "1.0", "divisor of logits"),
    Key::read(&["residual_multiplier"], "1.0", "factor of what branches add"),
    Key::read(&["attention_multiplier"], "1.0", "factor of scores"),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    windows::one_type(fields)?;
    Ok(LlamaConfig { net_bias: fields.get("mlp_bias")?, ..scaled(fields)? }.into())
}

/// Reads Llama's fields with the four factors.
pub(super) fn scaled(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    let (embedding, scores): (f64, Option<f64>) =
        (fields.get("embedding_multiplier")?, fields.optional("attention_multiplier")?);
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        embedding_scale: EmbeddingScale::By(embedding),
        residual_scale: fields.get("residual_multiplier")?,
        logit_scale: 1.0 / fields.get::<f64>("logits_scaling")?,
        score_size: scores.map(|scores| (scores * scores).recip()),
        ..base
    })
}

pub(super) const PRESETS: &[Preset] = &[Preset::llama(
    "granite-3.3-8b",
    "Granite 3.3, 8.2B parameters",
    131_072,
    // config.json of ibm-granite/granite-3.3-8b-base.
    LlamaConfig {
        vocabulary: 49_159,
        feed_forward: 12_800,
        layers: 40,
        embedding_scale: EmbeddingScale::By(12.0),
        residual_scale: 0.22,
        logit_scale: 1.0 / 16.0,
        // Scores are multiplied by 1 / 128.
        score_size: Some(16_384.0),
        rotation: Rotation { theta: 10_000_000.0, ..PLAIN },
        pad: Some(0),
        tied: true,
        ..LLAMA3_8B
    },
)];
