//! Cohere 2: windows, and no positions in layers without one.

use super::cohere;
use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "cohere2",
    class: "Cohere2ForCausalLM",
    keys: Keys { class: "Cohere2Config", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: cohere::COHERE,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "256000", VOCABULARY),
    Key::read(&["hidden_size"], "8192", HIDDEN),
    Key::read(&["intermediate_size"], "22528", FEED_FORWARD),
    Key::read(&["logit_scale"], "0.0625", "factor of logits"),
    Key::read(&["num_hidden_layers"], "40", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "8192", CONTEXT),
    Key::read(&["layer_norm_eps"], "1e-05", LAYER_NORM_EPS),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["sliding_window"], "4096", WINDOW),
    LAYER_TYPES,
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["sliding_window_pattern"], "4", "without `layer_types`, one layer in this number has no window"),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = cohere::cohere(fields)?;
    let pattern: u32 = fields.get("sliding_window_pattern")?;
    positive("sliding_window_pattern", pattern.into())?;
    let layers = Limited { is_needed: true, ..Limited::sliding(fields, base.layers)? };
    let window = layers.read(fields, |layer| (layer + 1).is_multiple_of(pattern))?;
    Ok(LlamaConfig { nope: window.map_or(LayerSet::First(base.layers), |window| window.full), window, ..base }.into())
}

pub(super) const PRESETS: &[Preset] = &[Preset::llama(
    "command-r7b",
    "Command R7B, 8.0B parameters: windows of 4096 in three of four layers, positions in these alone",
    132_096,
    // config.json of CohereLabs/c4ai-command-r7b-12-2024.
    LlamaConfig {
        vocabulary: 256_000,
        norm: Norm::LayerUnbiased,
        branches: Branches::Shared,
        rotation: Rotation { theta: 50_000.0, ..PLAIN },
        nope: LayerSet::Every(4),
        window: Some(Window { tokens: 4096, chunked: false, full: LayerSet::Every(4) }),
        logit_scale: 0.25,
        pad: Some(0),
        tied: true,
        ..LLAMA3_8B
    },
)];
