//! Cohere: branches that read one norm, a factor of logits, and layer norms without biases.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "cohere",
    class: "CohereForCausalLM",
    keys: Keys { class: "CohereConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: COHERE,
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
    Key::read(&["use_qk_norm"], "false", HEADS_NORMED),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "500000.0", THETA),
    WHOLE_HEADS,
];

/// The names of Cohere's models: one norm in each layer.
pub(super) const COHERE: Weights = Weights {
    inner: &[LAYER, QKV, ATTENTION, NET],
    pairs: Pairs::Adjacent,
    turned: &["wq", "wk", "bq", "bk", "q_norm", "k_norm"],
    ..USUAL
};

/// The norm, and those of each head.
pub(super) const LAYER: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.weight", &["norm1"]),
    HubTensor::table("self_attn.q_norm.weight", &["q_norm"]).of_inputs(2),
    HubTensor::table("self_attn.k_norm.weight", &["k_norm"]).of_inputs(1),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = cohere(fields)?;
    windows::one_type(fields)?;
    let has_norms: bool = fields.get("use_qk_norm")?;
    Ok(LlamaConfig { qk_norm: if has_norms { QkNorm::LayerEach } else { QkNorm::None }, ..base }.into())
}

/// Reads what all of Cohere's models share, with their factor of logits.
pub(super) fn cohere(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    Ok(LlamaConfig { logit_scale: fields.get("logit_scale")?, ..parallel(fields, Rope::USUAL)? })
}

/// Reads the layers of Cohere's models, with a way to state rotary positions.
pub(super) fn parallel(fields: &Fields, rope: Rope) -> Result<LlamaConfig, ConfigError> {
    let base = biased(fields, Base { norm_eps: "layer_norm_eps", rope, ..Base::USUAL }.read(fields)?)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        norm: Norm::LayerUnbiased,
        branches: Branches::Shared,
        ..base
    })
}
