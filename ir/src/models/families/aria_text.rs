//! Aria, its text models: experts whose matrices have inputs in rows, and one that all tokens take.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "aria_text",
    class: "AriaTextForCausalLM",
    keys: Keys { class: "AriaTextConfig", lists: &[KEYS, ONE_TYPE, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, NETS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "4096", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["pad_token_id"], "2", PAD),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::only(&["mlp_bias"], "false", "the nets have no biases"),
    Key::read(&["head_dim"], "null", HEAD),
    Key::alias(&["moe_num_experts"], "num_experts"),
    Key::alias(&["moe_topk"], "num_experts_per_tok"),
    Key::read(&["moe_num_shared_experts"], "2", SHARED),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
    Key::read(&["num_experts"], "8", EXPERTS),
    Key::read(&["num_experts_per_tok"], "2", CHOSEN),
];

const NETS: &[HubTensor] = &[
    HubTensor::linear("mlp.router.weight", &["router"]),
    HubTensor::table("mlp.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts().when(IN_ONE),
    HubTensor::table("mlp.experts.down_proj", &["expert_down"]).of_experts().when(IN_ONE),
    HubTensor::table("mlp.experts.fc1.weight", &["expert_gate", "expert_up"]).of_experts(),
    HubTensor::table("mlp.experts.fc2.weight", &["expert_down"]).of_experts(),
    HubTensor::linear("mlp.shared_experts.gate_proj.weight", &["shared_gate"]),
    HubTensor::linear("mlp.shared_experts.up_proj.weight", &["shared_up"]),
    HubTensor::linear("mlp.shared_experts.down_proj.weight", &["shared_down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    windows::one_type(fields)?;
    let experts = softmax(fields, "num_experts", "intermediate_size")?;
    let shared = fields.get::<u64>("moe_num_shared_experts")?.saturating_mul(experts.feed_forward);
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        experts: Some(Experts { shared, ..experts }),
        ..base
    }
    .into())
}
