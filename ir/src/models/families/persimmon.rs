//! Persimmon: layer norms also of heads, biases, and half of a head turns.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "persimmon",
    class: "PersimmonForCausalLM",
    keys: Keys { class: "PersimmonConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[Composite { tied: Tied::Whole, ..Composite::of("fuyu") }],
    weights: Weights {
        outer: &[
            HubTensor::table("model.embed_tokens.weight", &["emb"]),
            HubTensor::vector("model.final_layernorm.weight", &["final_norm"]),
            HubTensor::vector("model.final_layernorm.bias", &["final_norm_bias"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[LAYER, LAYER_NORMS],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "262144", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "16384", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "36", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["hidden_act"], "\"relu2\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "16384", CONTEXT),
    Key::read(&["layer_norm_eps"], "1e-05", LAYER_NORM_EPS),
    Key::read(&["qk_layernorm"], "true", "queries and keys have layer norms head by head"),
    Key::read(&["hidden_dropout"], "0.0", "dropout of the feed-forward net alone, which is not supported but for 0"),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["partial_rotary_factor"], "0.5", TURNED),
];

const LAYER: &[HubTensor] = &[
    HubTensor::linear("self_attn.query_key_value.weight", &["wq", "wk", "wv"]).joined(Join::Heads),
    HubTensor::vector("self_attn.query_key_value.bias", &["bq", "bk", "bv"]).joined(Join::Heads),
    HubTensor::linear("self_attn.dense.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("self_attn.dense.bias", &["bo"]),
    HubTensor::vector("self_attn.q_layernorm.weight", &["q_norm"]),
    HubTensor::vector("self_attn.q_layernorm.bias", &["q_norm_bias"]),
    HubTensor::vector("self_attn.k_layernorm.weight", &["k_norm"]),
    HubTensor::vector("self_attn.k_layernorm.bias", &["k_norm_bias"]),
    HubTensor::linear("mlp.dense_h_to_4h.weight", &["up"]),
    HubTensor::vector("mlp.dense_h_to_4h.bias", &["up_bias"]),
    HubTensor::linear("mlp.dense_4h_to_h.weight", &["down"]),
    HubTensor::vector("mlp.dense_4h_to_h.bias", &["down_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { part: Some("partial_rotary_factor"), ..Rope::USUAL };
    let base = Base { norm_eps: "layer_norm_eps", rope, ..Base::USUAL }.read(fields)?;
    windows::one_type(fields)?;
    let has_norms: bool = fields.get("qk_layernorm")?;
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "hidden_act")?,
        norm: Norm::Layer,
        qkv_bias: true,
        out_bias: true,
        net_bias: true,
        qk_norm: if has_norms { QkNorm::LayerHeads } else { QkNorm::None },
        ..base
    }
    .into())
}
