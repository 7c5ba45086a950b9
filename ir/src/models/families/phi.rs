//! Phi 1 to 2: branches that read one norm, biases, and half of a head turns.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "phi",
    class: "PhiForCausalLM",
    keys: Keys { class: "PhiConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        outer: &[
            HubTensor::table("model.embed_tokens.weight", &["emb"]),
            HubTensor::vector("model.final_layernorm.weight", &["final_norm"]),
            HubTensor::vector("model.final_layernorm.bias", &["final_norm_bias"]),
            HubTensor::linear("lm_head.weight", &["out"]),
            HubTensor::vector("lm_head.bias", &["out_bias"]),
        ],
        inner: &[LAYER, LAYER_NORMS, QKV],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "51200", VOCABULARY),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["intermediate_size"], "8192", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["resid_pdrop"], "0.0", DROPOUT),
    Key::read(&["embd_pdrop"], "0.0", DROPOUT),
    Key::read(&["hidden_act"], "\"gelu_new\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["layer_norm_eps"], "1e-05", LAYER_NORM_EPS),
    Key::read(&["qk_layernorm"], "false", "queries and keys have layer norms head by head"),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["partial_rotary_factor"], "0.5", TURNED),
];

const LAYER: &[HubTensor] = &[
    HubTensor::linear("self_attn.dense.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("self_attn.dense.bias", &["bo"]),
    HubTensor::vector("self_attn.q_layernorm.weight", &["q_norm"]),
    HubTensor::vector("self_attn.q_layernorm.bias", &["q_norm_bias"]),
    HubTensor::vector("self_attn.k_layernorm.weight", &["k_norm"]),
    HubTensor::vector("self_attn.k_layernorm.bias", &["k_norm_bias"]),
    HubTensor::linear("mlp.fc1.weight", &["up"]),
    HubTensor::vector("mlp.fc1.bias", &["up_bias"]),
    HubTensor::linear("mlp.fc2.weight", &["down"]),
    HubTensor::vector("mlp.fc2.bias", &["down_bias"]),
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
        branches: Branches::Shared,
        head_bias: true,
        qkv_bias: true,
        out_bias: true,
        net_bias: true,
        qk_norm: if has_norms { QkNorm::LayerHeads } else { QkNorm::None },
        residual_dropout: fields.get("resid_pdrop")?,
        embedding_dropout: fields.get("embd_pdrop")?,
        ..base
    }
    .into())
}
