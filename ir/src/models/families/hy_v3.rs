//! Hunyuan 3: norms of heads, and experts chosen by sigmoids.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "hy_v3",
    class: "HYV3ForCausalLM",
    keys: Keys { class: "HYV3Config", lists: &[KEYS, ONE_TYPE, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[CHOICE, NORMS, QKV, ATTENTION, NET, ROUTED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "120832", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "13312", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "80", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(
        &["initializer_range"],
        "0.006",
        "standard deviation of the initial matrices; those that write to the stream start smaller",
    ),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::only(&["mlp_bias"], "false", "the expert that all tokens take has no biases"),
    Key::read(&["num_experts"], "192", EXPERTS),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::read(&["num_shared_experts"], "1", SHARED),
    Key::read(&["moe_intermediate_size"], "1536", EXPERT_SIZE),
    Key::read(&["router_scaling_factor"], "2.826", SCALE),
    Key::nothing(&["enable_moe_fp32_combine"], "in f32 it is the same sum"),
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::read(&["rope_theta"], "11158840.0", THETA),
    Key::alias(&["num_local_experts"], "num_experts"),
    WHOLE_HEADS,
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
];

/// Routers and the expert that all tokens take, in files and in memory.
const CHOICE: &[HubTensor] = &[
    HubTensor::vector("mlp.e_score_correction_bias", &["router_bias"]).when(IN_MEMORY),
    HubTensor::linear("mlp.gate.weight", &["router"]).when(IN_MEMORY),
    HubTensor::linear("mlp.shared_experts.gate_proj.weight", &["shared_gate"]).when(IN_MEMORY),
    HubTensor::linear("mlp.shared_experts.up_proj.weight", &["shared_up"]).when(IN_MEMORY),
    HubTensor::linear("mlp.shared_experts.down_proj.weight", &["shared_down"]).when(IN_MEMORY),
    HubTensor::vector("mlp.expert_bias", &["router_bias"]),
    HubTensor::linear("mlp.router.gate.weight", &["router"]),
    HubTensor::linear("mlp.shared_mlp.gate_proj.weight", &["shared_gate"]),
    HubTensor::linear("mlp.shared_mlp.up_proj.weight", &["shared_up"]),
    HubTensor::linear("mlp.shared_mlp.down_proj.weight", &["shared_down"]),
];

/// The names are those of the class.
const IN_MEMORY: When = When::File("mlp.gate.weight");

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        qk_norm: QkNorm::Heads,
        experts: experts(fields, base.layers)?,
        ..base
    }
    .into())
}

fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let Some(dense) = dense_types(fields, layers, 1)? else { return Ok(None) };
    let chosen = sigmoid(fields, "num_experts", "moe_intermediate_size")?;
    let shared = fields.get::<u64>("num_shared_experts")?.saturating_mul(chosen.feed_forward);
    Ok(Some(Experts { dense, shared, scale: fields.get("router_scaling_factor")?, ..chosen }))
}
