//! SmolLM3: some layers have no positions.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;
use super::qwen2;

pub(super) const FAMILY: Family = Family {
    model_type: "smollm3",
    class: "SmolLM3ForCausalLM",
    keys: Keys { class: "SmolLM3Config", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: USUAL,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "128256", VOCABULARY),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["intermediate_size"], "11008", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "36", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["max_position_embeddings"], "32768", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-6", NORM_EPS),
    Key::read(&["rope_theta"], "2000000.0", THETA),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["pad_token_id"], "128004", PAD),
    Key::read(&["use_sliding_window"], "false", "`sliding_window` counts, in layers without positions"),
    Key::read(&["sliding_window"], "null", WINDOW),
    Key::read(
        &["no_rope_layers"],
        "null",
        "by layer, 0 for those without positions; else `no_rope_layer_interval` counts",
    ),
    Key::read(&["no_rope_layer_interval"], "4", "one layer in this number has no positions"),
    Key::nothing(&["max_window_layers"], UNREAD),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", "the products of the feed-forward net have biases"),
    WHOLE_HEADS,
    LAYER_TYPES,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    let nope = positions::absent(fields, base.layers, fields.optional("no_rope_layers")?)?;
    let window = qwen2::limited(fields, base.layers)?.read(fields, |layer| !nope.contains(layer))?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        nope,
        window,
        net_bias: fields.get("mlp_bias")?,
        ..base
    }
    .into())
}

/// `config.json` of HuggingFaceTB/SmolLM3-3B. Each fourth layer has no positions.
const SMOLLM3_3B: LlamaConfig = LlamaConfig {
    hidden: 2048,
    feed_forward: 11_008,
    layers: 36,
    heads: 16,
    kv_heads: 4,
    norm_eps: 1e-6,
    rotation: Rotation { theta: 5_000_000.0, ..PLAIN },
    nope: LayerSet::Every(4),
    pad: Some(128_004),
    tied: true,
    ..LLAMA3_8B
};

pub(super) const PRESETS: &[Preset] =
    &[Preset::llama("smollm3-3b", "SmolLM3, 3.1B parameters: no positions in every fourth layer", 65_536, SMOLLM3_3B)];
