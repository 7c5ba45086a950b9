//! Qwen2: biases of queries, keys and values.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "qwen2",
    class: "Qwen2ForCausalLM",
    keys: Keys { class: "Qwen2Config", lists: &[KEYS, FIXED_NET, QWEN, ROTARY, EVERY] },
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

/// `config.json` of Qwen/Qwen2.5-7B.
pub(super) const QWEN25_7B: LlamaConfig = LlamaConfig {
    vocabulary: 152_064,
    hidden: 3584,
    feed_forward: 18_944,
    layers: 28,
    heads: 28,
    kv_heads: 4,
    norm_eps: 1e-6,
    rotation: Rotation { theta: 1_000_000.0, ..PLAIN },
    qkv_bias: true,
    ..LLAMA3_8B
};

/// A small one: tied, of 32k tokens, and with the vocabulary of Qwen2.5-0.5B.
const fn small25(name: &'static str, about: &'static str, sizes: [u64; 5]) -> Preset {
    let [layers, hidden, feed_forward, heads, kv_heads] = sizes;
    let head = hidden / heads;
    let vocabulary = 151_936;
    let config = LlamaConfig {
        vocabulary,
        layers: layers as u32,
        hidden,
        feed_forward,
        heads,
        kv_heads,
        head,
        tied: true,
        ..QWEN25_7B
    };
    Preset { name, about, context: 32_768, config: ModelConfig::Llama(config) }
}

const fn qwen25(
    name: &'static str,
    about: &'static str,
    [layers, hidden, feed_forward, heads, kv_heads]: [u64; 5],
) -> Preset {
    let config = LlamaConfig { layers: layers as u32, hidden, feed_forward, heads, kv_heads, ..QWEN25_7B };
    Preset { name, about, context: 131_072, config: ModelConfig::Llama(config) }
}

/// Each of `config.json` of the model of its name in Qwen's space on the hub.
pub(super) const PRESETS: &[Preset] = &[
    small25("qwen2.5-0.5b", "Qwen2.5, 0.5B parameters", [24, 896, 4864, 14, 2]),
    small25("qwen2.5-1.5b", "Qwen2.5, 1.5B parameters", [28, 1536, 8960, 12, 2]),
    small25("qwen2.5-3b", "Qwen2.5, 3.1B parameters", [36, 2048, 11_008, 16, 2]),
    qwen25("qwen2.5-7b", "Qwen2.5, 7.6B parameters", [28, 3584, 18_944, 28, 4]),
    qwen25("qwen2.5-14b", "Qwen2.5, 15B parameters", [48, 5120, 13_824, 40, 8]),
    qwen25("qwen2.5-32b", "Qwen2.5, 33B parameters", [64, 5120, 27_648, 40, 8]),
    qwen25("qwen2.5-72b", "Qwen2.5, 73B parameters", [80, 8192, 29_568, 64, 8]),
];
