//! Laguna: gates of heads, windows with frequencies of their own, and experts that sigmoids choose.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "laguna",
    class: "LagunaForCausalLM",
    keys: Keys { class: "LagunaConfig", lists: &[KEYS, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, NET, GATES, ROUTED_WEIGHTS, SHARED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "100352", VOCABULARY),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["intermediate_size"], "8192", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "40", LAYERS),
    Key::read(&["num_attention_heads"], "48", HEADS),
    Key::read(&["num_attention_heads_per_layer"], "null", "query heads by layer; they must be the same in all"),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-6", NORM_EPS),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["gating"], "true", "true or per-head: one gate for each head; per-element: one for each element"),
    Key::read(&["sliding_window"], "512", WINDOW),
    LAYER_TYPES,
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::read(&["num_experts"], "256", EXPERTS),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::read(&["moe_intermediate_size"], "512", EXPERT_SIZE),
    Key::read(&["shared_expert_intermediate_size"], "512", "size of the expert that all tokens take"),
    Key::read(&["moe_routed_scaling_factor"], "1.0", SCALE),
    Key::only(&["moe_apply_router_weight_on_input"], "false", "weights multiply what experts give"),
    Key::only(&["moe_router_logit_softcapping"], "0.0", "logits of the router have no bound"),
    Key::read(&["rope_theta"], "10000.0", "base of the rotary frequencies of layers without a window"),
    Key::read(&["rope_local_base_freq"], "10000.0", "the same of layers with a window"),
    Key::read(&["partial_rotary_factor"], "1.0", TURNED),
];

/// Gates, and tensors that files have under other names than the class.
const GATES: &[HubTensor] = &[
    HubTensor::linear("self_attn.g_proj.weight", &["wg"]),
    HubTensor::vector("mlp.gate.e_score_correction_bias", &["router_bias"])
        .when(When::File("mlp.gate.e_score_correction_bias")),
    HubTensor::vector("mlp.experts.e_score_correction_bias", &["router_bias"]),
    HubTensor::linear("mlp.shared_experts.gate_proj.weight", &["shared_gate"]).when(IN_CLASS),
    HubTensor::linear("mlp.shared_experts.up_proj.weight", &["shared_up"]).when(IN_CLASS),
    HubTensor::linear("mlp.shared_experts.down_proj.weight", &["shared_down"]).when(IN_CLASS),
    HubTensor::linear("mlp.shared_expert.gate_proj.weight", &["shared_gate"]),
    HubTensor::linear("mlp.shared_expert.up_proj.weight", &["shared_up"]),
    HubTensor::linear("mlp.shared_expert.down_proj.weight", &["shared_down"]),
];

const IN_CLASS: When = When::File("mlp.shared_experts.gate_proj.weight");

/// The rotations of a file without any.
const ROTATIONS: &str = r#"{
    "full_attention": {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
}"#;

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope {
        local_theta: Some("rope_local_base_freq"),
        part: Some("partial_rotary_factor"),
        default: Some(ROTATIONS),
        ..Rope::USUAL
    };
    let base = biased(fields, Base { rope, ..Base::USUAL }.read(fields)?)?;
    let window = Limited::sliding(fields, base.layers)?.read(fields, |_| true)?;
    let heads: Vec<u64> = fields.optional("num_attention_heads_per_layer")?.unwrap_or_default();
    if let Some(other) = heads.iter().find(|heads| **heads != base.heads) {
        let why = format!("{other} heads in a layer are not supported, only {} in all", base.heads);
        return Err(unsupported("num_attention_heads_per_layer", why));
    }
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        local_rotation: base.local_rotation.filter(|_| window.is_some()),
        window,
        head_gate: gate(fields)?,
        qk_norm: QkNorm::Heads,
        experts: experts(fields, base.layers)?,
        ..base
    }
    .into())
}

fn gate(fields: &Fields) -> Result<HeadGate, ConfigError> {
    let stated: serde_json::Value = fields.get("gating")?;
    match (stated.as_bool(), stated.as_str()) {
        (Some(true), _) | (_, Some("per-head")) => Ok(HeadGate::SoftplusOfHead),
        (_, Some("per-element")) => Ok(HeadGate::Softplus),
        _ => Err(unsupported("gating", format!("{stated} is not supported, only true, per-head and per-element"))),
    }
}

fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let Some(dense) = dense_types(fields, layers, 1)? else { return Ok(None) };
    let chosen = sigmoid(fields, "num_experts", "moe_intermediate_size")?;
    let shared = fields.get("shared_expert_intermediate_size")?;
    Ok(Some(Experts { dense, shared, scale: fields.get("moe_routed_scaling_factor")?, ..chosen }))
}
