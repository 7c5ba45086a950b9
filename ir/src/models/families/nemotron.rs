//! Nemotron-4: layer norms, squared ReLU without a gate, and half of a head turns.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "nemotron",
    class: "NemotronForCausalLM",
    keys: Keys { class: "NemotronConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        outer: &[
            HubTensor::table("model.embed_tokens.weight", &["emb"]),
            HubTensor::vector("model.norm.weight", &["final_norm"]).around_one(),
            HubTensor::vector("model.norm.bias", &["final_norm_bias"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[GAINS, LAYER_NORMS, QKV, ATTENTION, NET],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "256000", VOCABULARY),
    Key::read(&["hidden_size"], "6144", HIDDEN),
    Key::read(&["intermediate_size"], "24576", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "48", HEADS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"relu2\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "4096", CONTEXT),
    Key::read(
        &["initializer_range"],
        "0.0134",
        "standard deviation of the initial matrices; those that write to the stream start smaller",
    ),
    Key::read(&["norm_eps"], "1e-05", LAYER_NORM_EPS),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["partial_rotary_factor"], "0.5", TURNED),
];

/// Files have gains relative to 1.
const GAINS: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.weight", &["norm1"]).around_one(),
    HubTensor::vector("post_attention_layernorm.weight", &["norm2"]).around_one(),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { part: Some("partial_rotary_factor"), ..Rope::USUAL };
    let base = biased(fields, Base { norm_eps: "norm_eps", rope, ..Base::USUAL }.read(fields)?)?;
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
