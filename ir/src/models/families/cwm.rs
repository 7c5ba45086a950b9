//! CWM: a Llama with windows in three of four layers.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "cwm",
    class: "CwmForCausalLM",
    keys: Keys { class: "CwmConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: USUAL,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "128256", VOCABULARY),
    Key::read(&["hidden_size"], "6144", HIDDEN),
    Key::read(&["intermediate_size"], "21504", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "64", LAYERS),
    Key::read(&["num_attention_heads"], "48", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["sliding_window"], "8192", WINDOW),
    LAYER_TYPES,
    Key::read(&["rope_theta"], "1000000.0", THETA),
    WHOLE_HEADS,
    Key::only(&["attention_bias"], "false", NO_BIAS),
];

/// The rotary positions of a file that states none.
const SCALED: &str = r#"{"rope_type": "llama3", "factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192}"#;

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { default: Some(SCALED), ..Rope::USUAL };
    let base = Base { rope, ..Base::USUAL }.read(fields)?;
    let window = Limited::sliding(fields, base.layers)?.read(fields, |layer| layer.is_multiple_of(4))?;
    Ok(LlamaConfig { activation: activation(fields, "hidden_act")?, net_bias: fields.get("mlp_bias")?, window, ..base }
        .into())
}
