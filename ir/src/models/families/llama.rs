//! Llama 1 to 3, and what is built like them.

use super::Family;
use super::common::{
    ACTIVATION, BIAS, CONTEXT, EVERY, FEED_FORWARD, HEAD, HEADS, HIDDEN, KV_HEADS, LATENT_EPS, LAYERS, ONE_TYPE,
    ROTARY, THETA, VOCABULARY, WHOLE_HEADS,
};
use crate::models::config::{ConfigError, ModelConfig};
use crate::models::fields::Fields;
use crate::models::keys::{Key, Keys};
use crate::models::llama::LlamaConfig;
use crate::models::read::{Base, activation, windows};

pub(super) const FAMILY: Family = Family {
    model_type: "llama",
    class: "LlamaForCausalLM",
    keys: Keys { class: "LlamaConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    whole: None,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "11008", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-6", LATENT_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", "the products of the feed-forward net have biases"),
    Key::read(&["mlp_gate"], "true", "an addition: false for a feed-forward net of `relu2` without a gate"),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    windows::one_type(fields)?;
    let has_bias = fields.get("attention_bias")?;
    Ok(LlamaConfig {
        gated: fields.get("mlp_gate")?,
        activation: activation(fields, "hidden_act")?,
        qkv_bias: has_bias,
        out_bias: has_bias,
        net_bias: fields.get("mlp_bias")?,
        ..base
    }
    .into())
}
