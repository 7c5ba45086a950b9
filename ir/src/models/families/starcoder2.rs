//! StarCoder2: layer norms, biases, GELU without a gate.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "starcoder2",
    class: "Starcoder2ForCausalLM",
    keys: Keys { class: "Starcoder2Config", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { outer: LAYER_NORM_OUTER, inner: &[LAYER_NORMS, QKV, ATTENTION, NET_OF_TWO], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "49152", VOCABULARY),
    Key::read(&["hidden_size"], "3072", HIDDEN),
    Key::read(&["intermediate_size"], "12288", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "30", LAYERS),
    Key::read(&["num_attention_heads"], "24", HEADS),
    Key::read(&["num_key_value_heads"], "2", KV_HEADS),
    Key::read(&["hidden_act"], "\"gelu_pytorch_tanh\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "4096", CONTEXT),
    Key::read(
        &["initializer_range"],
        "0.018042",
        "standard deviation of the initial matrices; those that write to the stream start smaller",
    ),
    Key::read(&["norm_epsilon"], "1e-05", LAYER_NORM_EPS),
    Key::read(&["sliding_window"], "null", WINDOW),
    Key::read(&["residual_dropout"], "0.0", DROPOUT),
    Key::read(&["embedding_dropout"], "0.0", DROPOUT),
    Key::read(&["use_bias"], "true", "products have biases"),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

const NET_OF_TWO: &[HubTensor] = &[
    HubTensor::linear("mlp.c_fc.weight", &["up"]),
    HubTensor::vector("mlp.c_fc.bias", &["up_bias"]),
    HubTensor::linear("mlp.c_proj.weight", &["down"]),
    HubTensor::vector("mlp.c_proj.bias", &["down_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { norm_eps: "norm_epsilon", ..Base::USUAL }.read(fields)?;
    let has_bias = fields.get("use_bias")?;
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "hidden_act")?,
        norm: Norm::Layer,
        window: windows::of_all(fields)?,
        qkv_bias: has_bias,
        out_bias: has_bias,
        net_bias: has_bias,
        residual_dropout: fields.get("residual_dropout")?,
        embedding_dropout: fields.get("embedding_dropout")?,
        ..base
    }
    .into())
}
