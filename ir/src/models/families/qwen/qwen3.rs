//! Qwen3: norms of queries and keys.

use super::prelude::*;
use super::qwen2::{self, QWEN25_7B};

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "qwen3",
    class: "Qwen3ForCausalLM",
    keys: Keys { class: "Qwen3Config", lists: &[KEYS, FIXED_NET, qwen2::QWEN, ROTARY, EVERY] },
    wholes: &[
        Composite { text_type: Some("qwen3_vl_text"), defaults: VL, tied: Tied::Whole, ..Composite::of("qwen3_vl") },
        Composite { tied: Tied::Whole, ..Composite::of("internvl") },
        Composite { tied: Tied::Whole, ..Composite::of("moss_transcribe_diarize") },
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
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["rms_norm_eps"], "1e-6", LATENT_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["sliding_window"], "4096", WINDOW),
    Key::read(&["max_window_layers"], "28", "which layers have the window"),
    WHOLE_HEADS,
    LAYER_TYPES,
];

/// Defaults of the text model of Qwen3-VL.
const VL: &str = r#"{"max_position_embeddings": 128000, "rope_theta": 5e5, "sliding_window": null}"#;

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    let most = qwen2::full_at_first(fields)?;
    let window = qwen2::limited(fields, base.layers)?.read(fields, |layer| u64::from(layer) < most)?;
    Ok(LlamaConfig { window, qk_norm: QkNorm::Heads, ..base }.into())
}

/// `config.json` of Qwen/Qwen3-8B.
pub(in crate::models::families) const QWEN3_8B: LlamaConfig = LlamaConfig {
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

const fn qwen3(name: &'static str, about: &'static str, config: LlamaConfig) -> Preset {
    Preset { name, about, context: 40_960, config: ModelConfig::Llama(config) }
}

/// Each of `config.json` of the model of its name in Qwen's space on the hub.
pub(in crate::models::families) const PRESETS: &[Preset] = &[
    qwen3(
        "qwen3-0.6b",
        "Qwen3, 0.6B parameters",
        LlamaConfig { layers: 28, hidden: 1024, feed_forward: 3072, heads: 16, tied: true, ..QWEN3_8B },
    ),
    qwen3(
        "qwen3-1.7b",
        "Qwen3, 1.7B parameters",
        LlamaConfig { layers: 28, hidden: 2048, feed_forward: 6144, heads: 16, tied: true, ..QWEN3_8B },
    ),
    qwen3(
        "qwen3-4b",
        "Qwen3, 4.0B parameters",
        LlamaConfig { layers: 36, hidden: 2560, feed_forward: 9728, heads: 32, tied: true, ..QWEN3_8B },
    ),
    qwen3(
        "qwen3-8b",
        "Qwen3, 8.2B parameters",
        LlamaConfig { layers: 36, hidden: 4096, feed_forward: 12_288, heads: 32, ..QWEN3_8B },
    ),
    qwen3(
        "qwen3-14b",
        "Qwen3, 15B parameters",
        LlamaConfig { layers: 40, hidden: 5120, feed_forward: 17_408, heads: 40, ..QWEN3_8B },
    ),
    qwen3(
        "qwen3-32b",
        "Qwen3, 33B parameters",
        LlamaConfig { layers: 64, hidden: 5120, feed_forward: 25_600, heads: 64, ..QWEN3_8B },
    ),
];
