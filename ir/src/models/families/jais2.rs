//! Jais 2: layer norms, biases, and a feed-forward net of squared ReLU without a gate.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "jais2",
    class: "Jais2ForCausalLM",
    keys: Keys { class: "Jais2Config", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { outer: LAYER_NORM_OUTER, inner: &[LAYER_NORMS, QKV, ATTENTION, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "150272", VOCABULARY),
    Key::read(&["hidden_size"], "3328", HIDDEN),
    Key::read(&["intermediate_size"], "26624", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "26", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"relu2\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "8192", CONTEXT),
    Key::read(&["attention_bias"], "true", BIAS),
    Key::read(&["mlp_bias"], "true", NET_BIAS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["layer_norm_eps"], "1e-05", LAYER_NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base { norm_eps: "layer_norm_eps", ..Base::USUAL }.read(fields)?)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "hidden_act")?,
        norm: Norm::Layer,
        net_bias: fields.get("mlp_bias")?,
        ..base
    }
    .into())
}
