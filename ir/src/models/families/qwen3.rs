//! Qwen3: norms of queries and keys.

use super::common::{
    BIAS, EVERY, FEED_FORWARD, FIXED_NET, HEAD_SIZE, HEADS, HIDDEN, KV_HEADS, LATENT_EPS, LAYER_TYPES, LAYERS, ROTARY,
    THETA, WHOLE_HEADS, WINDOW,
};
use super::{Family, qwen2};
use crate::models::attention::QkNorm;
use crate::models::config::{ConfigError, ModelConfig};
use crate::models::fields::Fields;
use crate::models::keys::{Key, Keys};
use crate::models::llama::LlamaConfig;
use crate::models::read::Base;

pub(super) const FAMILY: Family = Family {
    model_type: "qwen3",
    class: "Qwen3ForCausalLM",
    keys: Keys { class: "Qwen3Config", lists: &[KEYS, FIXED_NET, qwen2::QWEN, ROTARY, EVERY] },
    whole: None,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "22016", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "32", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["rms_norm_eps"], "1e-6", LATENT_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["sliding_window"], "4096", WINDOW),
    Key::read(&["max_window_layers"], "28", "which layers have the window"),
    WHOLE_HEADS,
    LAYER_TYPES,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    let has_bias = fields.get("attention_bias")?;
    let most = qwen2::full_at_first(fields)?;
    let window = qwen2::limited(fields, base.layers)?.read(fields, |layer| u64::from(layer) < most)?;
    Ok(LlamaConfig { qkv_bias: has_bias, out_bias: has_bias, window, qk_norm: QkNorm::Heads, ..base }.into())
}
