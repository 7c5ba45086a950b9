//! Gemma 3, its text models: layers with a window have frequencies of their own.

use super::gemma2::{self, GEMMA2_9B};
use super::llama::PLAIN;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "gemma3_text",
    class: "Gemma3ForCausalLM",
    keys: Keys { class: "Gemma3TextConfig", lists: &[KEYS, gemma2::GEMMA, ROTARY, EVERY] },
    wholes: &[Composite { tied: Tied::Whole, ..Composite::of("gemma3") }],
    weights: gemma2::GEMMA_WEIGHTS,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "262208", VOCABULARY),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rope_theta"], "1000000.0", "base of the rotary frequencies of layers without a window"),
    Key::read(&["rope_local_base_freq"], "10000.0", "the same of layers with a window"),
    Key::only(&["attn_logit_softcapping"], "null", UNREAD),
    Key::read(&["final_logit_softcapping"], "null", LOGIT_BOUND),
    Key::read(&["sliding_window_pattern"], "6", "without `layer_types`, one layer in this number has no window"),
    Key::alias(&["_sliding_window_pattern"], "sliding_window_pattern"),
    Key::only(&["use_bidirectional_attention"], "false", "a token sees no later ones"),
    Key::read(&["attention_bias"], "false", BIAS),
    WHOLE_HEADS,
    LAYER_TYPES,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = gemma2::gemma(fields, Rope { local_theta: Some("rope_local_base_freq"), ..Rope::USUAL })?;
    let layers = Limited { is_needed: true, ..Limited::sliding(fields, base.layers)? };
    let pattern: u32 = fields.get("sliding_window_pattern")?;
    let window = layers.read(fields, |layer| pattern == 0 || (layer + 1).is_multiple_of(pattern))?;
    let local_rotation = base.local_rotation.filter(|_| window.is_some());
    Ok(LlamaConfig { local_rotation, window, qk_norm: QkNorm::Heads, ..base }.into())
}

/// `config.json` of google/gemma-3-4b-pt, its `text_config`: one layer in six has no window, and frequencies of its own.
pub(in crate::models::families) const GEMMA3_4B: LlamaConfig = LlamaConfig {
    vocabulary: 262_208,
    feed_forward: 10_240,
    layers: 34,
    heads: 8,
    kv_heads: 4,
    rotation: Rotation { theta: 1_000_000.0, scaling: Some(Scaling::Linear { factor: 8.0 }), ..PLAIN },
    local_rotation: Some(PLAIN),
    softcap: None,
    logit_softcap: None,
    window: of_five_in_six(1024),
    qk_norm: QkNorm::Heads,
    hidden: 2560,
    ..GEMMA2_9B
};

/// `config.json` of google/gemma-3-1b-pt, without its sizes.
const GEMMA3_1B: LlamaConfig = LlamaConfig {
    vocabulary: 262_144,
    rotation: Rotation { theta: 1_000_000.0, ..PLAIN },
    window: of_five_in_six(512),
    ..GEMMA3_4B
};

const fn of_five_in_six(tokens: u64) -> Option<Window> {
    Some(Window { full: LayerSet::Every(6), ..Window::of_all(tokens) })
}

/// Each of `config.json` of the model of its name in Google's space on the hub.
pub(in crate::models::families) const PRESETS: &[Preset] = &[
    Preset::llama(
        "gemma3-270m",
        "Gemma 3, 0.3B parameters: windows of 512 in five of six layers",
        32_768,
        LlamaConfig { hidden: 640, feed_forward: 2048, layers: 18, heads: 4, kv_heads: 1, ..GEMMA3_1B },
    ),
    Preset::llama(
        "gemma3-1b",
        "Gemma 3, 1.0B parameters: windows of 512 in five of six layers",
        32_768,
        LlamaConfig { hidden: 1152, feed_forward: 6912, layers: 26, heads: 4, kv_heads: 1, ..GEMMA3_1B },
    ),
    Preset::llama("gemma3-4b", "Gemma 3, 3.9B parameters: windows of 1024 in five of six layers", 131_072, GEMMA3_4B),
    Preset::llama(
        "gemma3-12b",
        "Gemma 3, 12B parameters: windows of 1024 in five of six layers",
        131_072,
        LlamaConfig { hidden: 3840, feed_forward: 15_360, layers: 48, heads: 16, kv_heads: 8, ..GEMMA3_4B },
    ),
    Preset::llama(
        "gemma3-27b",
        "Gemma 3, 27B parameters: windows of 1024 in five of six layers",
        131_072,
        LlamaConfig {
            hidden: 5376,
            feed_forward: 21_504,
            layers: 62,
            heads: 32,
            kv_heads: 16,
            head: 128,
            score_size: Some(168.0),
            ..GEMMA3_4B
        },
    ),
];
