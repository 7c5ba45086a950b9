//! Qwen2: biases of queries, keys and values.

use super::Family;
use super::common::{
    CONTEXT, EVERY, FEED_FORWARD, FIXED_NET, HEAD, HEADS, HIDDEN, KV_HEADS, LATENT_EPS, LAYER_TYPES, LAYERS, ROTARY,
    THETA, VOCABULARY, WHOLE_HEADS, WINDOW,
};
use crate::models::config::{ConfigError, ModelConfig};
use crate::models::fields::Fields;
use crate::models::keys::{Key, Keys};
use crate::models::llama::LlamaConfig;
use crate::models::read::Base;
use crate::models::read::windows::{Limit, Limited};

pub(super) const FAMILY: Family = Family {
    model_type: "qwen2",
    class: "Qwen2ForCausalLM",
    keys: Keys { class: "Qwen2Config", lists: &[KEYS, FIXED_NET, QWEN, ROTARY, EVERY] },
    whole: None,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "22016", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "32", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rms_norm_eps"], "1e-6", LATENT_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::only(&["attention_bias", "qkv_bias"], "true", "the class always has a bias of queries, keys and values"),
    Key::read(&["sliding_window"], "4096", WINDOW),
    Key::read(&["max_window_layers"], "28", "which layers have the window"),
    WHOLE_HEADS,
    LAYER_TYPES,
];

/// The keys of all Qwens.
pub(super) const QWEN: &[Key] = &[
    Key::read(&["vocab_size"], "151936", VOCABULARY),
    Key::read(&["max_position_embeddings"], "32768", CONTEXT),
    Key::read(&["use_sliding_window"], "false", "`sliding_window` counts"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    let most = full_at_first(fields)?;
    let window = limited(fields, base.layers)?.read(fields, |layer| u64::from(layer) < most)?;
    Ok(LlamaConfig { qkv_bias: true, window, ..base }.into())
}

/// The layers of a Qwen, which have a window where `use_sliding_window` says so.
pub(super) fn limited(fields: &Fields, layers: u32) -> Result<Limited, ConfigError> {
    let is_used = fields.get("use_sliding_window")?;
    let tokens = if is_used { fields.optional("sliding_window")? } else { None };
    Ok(Limited { layers, limit: Limit::Sliding, tokens, is_needed: false })
}

/// The number that `max_window_layers` states.
pub(super) fn full_at_first(fields: &Fields) -> Result<u64, ConfigError> {
    Ok(fields.optional("max_window_layers")?.unwrap_or(0))
}
