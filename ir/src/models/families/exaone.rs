//! EXAONE 3, which Llama's class computes.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "exaone",
    class: "LlamaForCausalLM",
    keys: Keys { class: "ExaoneConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "transformer.",
        layers: "h.",
        embedding: "transformer.wte.weight",
        outer: &[
            HubTensor::table("transformer.wte.weight", &["emb"]),
            HubTensor::vector("transformer.ln_f.weight", &["final_norm"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[LAYER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "102400", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "14336", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "4096", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["rope_theta"], "500000.0", THETA),
    Key::alias(&["num_layers"], "num_hidden_layers"),
    Key::alias(&["layer_norm_epsilon"], "rms_norm_eps"),
    Key::alias(&["activation_function"], "hidden_act"),
    WHOLE_HEADS,
];

const LAYER: &[HubTensor] = &[
    HubTensor::vector("ln_1.weight", &["norm1"]),
    HubTensor::vector("ln_2.weight", &["norm2"]),
    HubTensor::linear("attn.attention.q_proj.weight", &["wq"]),
    HubTensor::linear("attn.attention.k_proj.weight", &["wk"]),
    HubTensor::linear("attn.attention.v_proj.weight", &["wv"]),
    HubTensor::linear("attn.attention.out_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("attn.attention.q_proj.bias", &["bq"]),
    HubTensor::vector("attn.attention.k_proj.bias", &["bk"]),
    HubTensor::vector("attn.attention.v_proj.bias", &["bv"]),
    HubTensor::vector("attn.attention.out_proj.bias", &["bo"]),
    HubTensor::linear("mlp.c_fc_0.weight", &["gate"]),
    HubTensor::linear("mlp.c_fc_1.weight", &["up"]),
    HubTensor::linear("mlp.c_proj.weight", &["down"]),
    HubTensor::vector("mlp.c_fc_0.bias", &["gate_bias"]),
    HubTensor::vector("mlp.c_fc_1.bias", &["up_bias"]),
    HubTensor::vector("mlp.c_proj.bias", &["down_bias"]),
];

/// Reads the fields of what Llama's class computes.
pub(super) fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig { activation: activation(fields, "hidden_act")?, net_bias: fields.get("mlp_bias")?, ..base }.into())
}
