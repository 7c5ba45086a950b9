//! Qwen3: norms of queries and keys.

use super::prelude::*;
use super::qwen2::{self, QWEN25_7B};

pub(super) const FAMILY: Family = Family {
    model_type: "qwen3",
    class: "Qwen3ForCausalLM",
    keys: Keys { class: "Qwen3Config", lists: &[KEYS, FIXED_NET, qwen2::QWEN, ROTARY, EVERY] },
    whole: None,
    weights: USUAL,
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
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    let most = qwen2::full_at_first(fields)?;
    let window = qwen2::limited(fields, base.layers)?.read(fields, |layer| u64::from(layer) < most)?;
    Ok(LlamaConfig { window, qk_norm: QkNorm::Heads, ..base }.into())
}

/// `config.json` of Qwen/Qwen3-8B.
pub(super) const QWEN3_8B: LlamaConfig = LlamaConfig {
    vocabulary: 151_936,
    hidden: 4096,
    feed_forward: 12_288,
    layers: 36,
    heads: 32,
    kv_heads: 8,
    qkv_bias: false,
    qk_norm: QkNorm::Heads,
    ..QWEN25_7B
};

const fn qwen3(
    name: &'static str,
    about: &'static str,
    tied: bool,
    [layers, hidden, feed_forward, heads]: [u64; 4],
) -> Preset {
    let config = LlamaConfig { layers: layers as u32, hidden, feed_forward, heads, tied, ..QWEN3_8B };
    Preset { name, about, context: 40_960, config: ModelConfig::Llama(config) }
}

/// Each of `config.json` of the model of its name in Qwen's space on the hub.
pub(super) const PRESETS: &[Preset] = &[
    qwen3("qwen3-0.6b", "Qwen3, 0.6B parameters", true, [28, 1024, 3072, 16]),
    qwen3("qwen3-1.7b", "Qwen3, 1.7B parameters", true, [28, 2048, 6144, 16]),
    qwen3("qwen3-4b", "Qwen3, 4.0B parameters", true, [36, 2560, 9728, 32]),
    qwen3("qwen3-8b", "Qwen3, 8.2B parameters", false, [36, 4096, 12_288, 32]),
    qwen3("qwen3-14b", "Qwen3, 15B parameters", false, [40, 5120, 17_408, 40]),
    qwen3("qwen3-32b", "Qwen3, 33B parameters", false, [64, 5120, 25_600, 64]),
];
