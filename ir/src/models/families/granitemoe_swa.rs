//! Granite with experts, windows and sinks.

use super::granite_swa;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "granitemoe_swa",
    class: "GraniteMoeSWAForCausalLM",
    keys: Keys { class: "GraniteMoeSWAConfig", lists: &[KEYS, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, EXPERTS_IN_ONE, granite_swa::SINKS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
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
    Key::read(&["shared_intermediate_size"], "0", "size of the expert that all tokens take; 0: none"),
    Key::read(&["sliding_window"], "128", WINDOW),
    LAYER_TYPES,
    Key::read(&["layer_rope_theta"], "null", "base of the rotary frequencies, by layer: one for all"),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

/// Routers and experts, and the expert that all tokens take.
const EXPERTS_IN_ONE: &[HubTensor] = &[
    HubTensor::linear("block_sparse_moe.router.weight", &["router"]),
    HubTensor::linear("block_sparse_moe.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts(),
    HubTensor::linear("block_sparse_moe.experts.down_proj", &["expert_down"]).of_experts(),
    HubTensor::linear("shared_mlp.input_linear.weight", &["shared_gate", "shared_up"]),
    HubTensor::linear("shared_mlp.output_linear.weight", &["shared_down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let experts = softmax(fields, "num_local_experts", "intermediate_size")?;
    let shared = fields.get("shared_intermediate_size")?;
    Ok(LlamaConfig { experts: Some(Experts { shared, ..experts }), ..granite_swa::windowed(fields)? }.into())
}
