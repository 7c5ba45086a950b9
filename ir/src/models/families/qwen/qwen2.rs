//! Qwen2: biases of queries, keys and values.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "qwen2",
    class: "Qwen2ForCausalLM",
    keys: Keys { class: "Qwen2Config", lists: &[KEYS, FIXED_NET, QWEN, ROTARY, EVERY] },
    wholes: &[
        Composite { text_type: Some("qwen2_vl_text"), defaults: VL, tied: Tied::Either, ..Composite::of("qwen2_vl") },
        Composite {
            text_type: Some("qwen2_5_vl_text"),
            defaults: VL,
            tied: Tied::Either,
            ..Composite::of("qwen2_5_vl")
        },
        Composite { tied: Tied::Whole, ..Composite::of("internvl") },
        Composite { tied: Tied::Whole, ..Composite::of("got_ocr2") },
    ],
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
pub(in crate::models::families) const QWEN: &[Key] = &[
    Key::read(&["vocab_size"], "151936", VOCABULARY),
    Key::read(&["max_position_embeddings"], "32768", CONTEXT),
    Key::read(&["use_sliding_window"], "false", "`sliding_window` counts"),
];

/// Defaults of the text models of Qwen2-VL and Qwen2.5-VL.
const VL: &str = r#"{"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "max_window_layers": 80, "rope_theta": 1e6}"#;

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    let most = full_at_first(fields)?;
    let window = limited(fields, base.layers)?.read(fields, |layer| u64::from(layer) < most)?;
    Ok(LlamaConfig { qkv_bias: true, window, ..base }.into())
}

/// The layers of a Qwen, which have a window where `use_sliding_window` says so.
pub(in crate::models::families) fn limited(fields: &Fields, layers: u32) -> Result<Limited, ConfigError> {
    let is_used = fields.get("use_sliding_window")?;
    let tokens = if is_used { fields.optional("sliding_window")? } else { None };
    Ok(Limited { layers, limit: Limit::Sliding, tokens, is_needed: false })
}

/// The number that `max_window_layers` states.
pub(in crate::models::families) fn full_at_first(fields: &Fields) -> Result<u64, ConfigError> {
    Ok(fields.optional("max_window_layers")?.unwrap_or(0))
}

/// `config.json` of Qwen/Qwen2.5-7B.
pub(in crate::models::families) const QWEN25_7B: LlamaConfig = LlamaConfig {
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

/// The common part of the small ones, of 32k tokens: they are tied, and have the vocabulary of Qwen2.5-0.5B.
const SMALL25: LlamaConfig = LlamaConfig { vocabulary: 151_936, tied: true, ..QWEN25_7B };

/// Each of `config.json` of the model of its name in Qwen's space on the hub.
pub(in crate::models::families) const PRESETS: &[Preset] = &[
    Preset::llama(
        "qwen2.5-0.5b",
        "Qwen2.5, 0.5B parameters",
        32_768,
        LlamaConfig { layers: 24, hidden: 896, feed_forward: 4864, heads: 14, kv_heads: 2, head: 64, ..SMALL25 },
    ),
    Preset::llama(
        "qwen2.5-1.5b",
        "Qwen2.5, 1.5B parameters",
        32_768,
        LlamaConfig { layers: 28, hidden: 1536, feed_forward: 8960, heads: 12, kv_heads: 2, head: 128, ..SMALL25 },
    ),
    Preset::llama(
        "qwen2.5-3b",
        "Qwen2.5, 3.1B parameters",
        32_768,
        LlamaConfig { layers: 36, hidden: 2048, feed_forward: 11_008, heads: 16, kv_heads: 2, head: 128, ..SMALL25 },
    ),
    Preset::llama(
        "qwen2.5-7b",
        "Qwen2.5, 7.6B parameters",
        131_072,
        LlamaConfig { layers: 28, hidden: 3584, feed_forward: 18_944, heads: 28, kv_heads: 4, ..QWEN25_7B },
    ),
    Preset::llama(
        "qwen2.5-14b",
        "Qwen2.5, 15B parameters",
        131_072,
        LlamaConfig { layers: 48, hidden: 5120, feed_forward: 13_824, heads: 40, kv_heads: 8, ..QWEN25_7B },
    ),
    Preset::llama(
        "qwen2.5-32b",
        "Qwen2.5, 33B parameters",
        131_072,
        LlamaConfig { layers: 64, hidden: 5120, feed_forward: 27_648, heads: 40, kv_heads: 8, ..QWEN25_7B },
    ),
    Preset::llama(
        "qwen2.5-72b",
        "Qwen2.5, 73B parameters",
        131_072,
        LlamaConfig { layers: 80, hidden: 8192, feed_forward: 29_568, heads: 64, kv_heads: 8, ..QWEN25_7B },
    ),
];
