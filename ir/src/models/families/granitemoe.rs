//! Granite with experts.

use super::granite;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "granitemoe",
    class: "GraniteMoeForCausalLM",
    keys: Keys { class: "GraniteMoeConfig", lists: &[KEYS, ONE_TYPE, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, EXPERTS_OF_GRANITE], ..USUAL },
    read,
};

pub(super) const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "11008", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["embedding_multiplier"], "1.0", "factor of embeddings"),
    Key::read(&["logits_scaling"], "1.0", "divisor of logits"),
    Key::read(&["residual_multiplier"], "1.0", "factor of what branches add"),
    Key::read(&["attention_multiplier"], "1.0", "factor of scores"),
    Key::read(&["num_local_experts"], "8", EXPERTS),
    Key::read(&["num_experts_per_tok"], "2", CHOSEN),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

/// Routers and experts, and the expert that all tokens take: its gate and `up` are one matrix.
pub(super) const EXPERTS_OF_GRANITE: &[HubTensor] = &[
    HubTensor::linear("block_sparse_moe.router.weight", &["router"]).when(When::File("block_sparse_moe.router.weight")),
    HubTensor::linear("block_sparse_moe.router.layer.weight", &["router"]),
    HubTensor::linear("block_sparse_moe.experts.gate_up_proj", &["expert_gate", "expert_up"])
        .of_experts()
        .when(When::File("block_sparse_moe.experts.down_proj")),
    HubTensor::linear("block_sparse_moe.experts.down_proj", &["expert_down"])
        .of_experts()
        .when(When::File("block_sparse_moe.experts.down_proj")),
    HubTensor::linear("block_sparse_moe.input_linear.weight", &["expert_gate", "expert_up"]).of_experts(),
    HubTensor::linear("block_sparse_moe.output_linear.weight", &["expert_down"]).of_experts(),
    HubTensor::linear("shared_mlp.input_linear.weight", &["shared_gate", "shared_up"]),
    HubTensor::linear("shared_mlp.output_linear.weight", &["shared_down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    windows::one_type(fields)?;
    let experts = softmax(fields, "num_local_experts", "intermediate_size")?;
    Ok(LlamaConfig { experts: Some(experts), ..granite::scaled(fields)? }.into())
}
