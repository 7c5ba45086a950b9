//! Granite with experts, windows and sinks.

use super::prelude::*;
use super::{granite_swa, granitemoe, granitemoeshared};

pub(super) const FAMILY: Family = Family {
    model_type: "granitemoe_swa",
    class: "GraniteMoeSWAForCausalLM",
    keys: Keys {
        class: "GraniteMoeSWAConfig",
        lists: &[KEYS, granitemoeshared::SHARED, granitemoe::KEYS, ROUTED, ROUTER_LOSS, ROTARY, EVERY],
    },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, EXPERTS_IN_ONE, granite_swa::SINKS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["sliding_window"], "128", WINDOW),
    LAYER_TYPES,
    Key::read(&["layer_rope_theta"], "null", "base of the rotary frequencies, by layer: one for all"),
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
