//! DiffLlama: Llama whose heads give differences of two attentions.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "diffllama",
    class: "DiffLlamaForCausalLM",
    keys: Keys { class: "DiffLlamaConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, HALVES, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["intermediate_size"], "8192", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "16", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::only(&["attention_dropout"], "0.0", "the class refuses others"),
    Key::nothing(&["lambda_std_dev"], "the first factors of differences; ours are those of its default"),
    WHOLE_HEADS,
];

/// Attention: the heads of both halves are behind each other.
const HALVES: &[HubTensor] = &[
    HubTensor::linear("self_attn.q_proj.weight", &["wq1", "wq2"]),
    HubTensor::linear("self_attn.k_proj.weight", &["wk1", "wk2"]),
    HubTensor::linear("self_attn.v_proj.weight", &["wv1", "wv2"]),
    HubTensor::vector("self_attn.q_proj.bias", &["bq1", "bq2"]),
    HubTensor::vector("self_attn.k_proj.bias", &["bk1", "bk2"]),
    HubTensor::vector("self_attn.v_proj.bias", &["bv1", "bv2"]),
    HubTensor::linear("self_attn.o_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("self_attn.o_proj.bias", &["bo"]),
    HubTensor::vector("self_attn.lambda_q1", &["lambda_q1"]),
    HubTensor::vector("self_attn.lambda_k1", &["lambda_k1"]),
    HubTensor::vector("self_attn.lambda_q2", &["lambda_q2"]),
    HubTensor::vector("self_attn.lambda_k2", &["lambda_k2"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    Ok(LlamaConfig { activation: activation(fields, "hidden_act")?, differential: true, ..base }.into())
}
