//! GLM-4 of 2024: half of a head turns, by pairs of neighbours.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "glm",
    class: "GlmForCausalLM",
    keys: Keys { class: "GlmConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, JOINED], pairs: Pairs::Adjacent, turned: TURNING, ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "151552", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "13696", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "40", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "2", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1.5625e-07", NORM_EPS),
    Key::read(&["pad_token_id"], "151329", PAD),
    Key::read(&["attention_bias"], "true", QKV_BIAS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["partial_rotary_factor"], "0.5", TURNED),
];

/// The parameters that positions turn.
pub(super) const TURNING: &[&str] = &["wq", "wk", "bq", "bk"];

/// The gate and `up` are one matrix.
pub(super) const JOINED: &[HubTensor] = &[
    HubTensor::linear("mlp.gate_up_proj.weight", &["gate", "up"]),
    HubTensor::linear("mlp.down_proj.weight", &["down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(glm(fields)?.into())
}

/// Reads what GLM and GLM-4 share.
pub(super) fn glm(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    let rope = Rope { part: Some("partial_rotary_factor"), ..Rope::USUAL };
    let base = Base { rope, ..Base::USUAL }.read(fields)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig { activation: activation(fields, "hidden_act")?, qkv_bias: fields.get("attention_bias")?, ..base })
}
