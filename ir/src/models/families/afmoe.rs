//! AFMoE: gated heads, norms of both sides, windows, and no positions in layers without one.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "afmoe",
    class: "AfmoeForCausalLM",
    keys: Keys { class: "AfmoeConfig", lists: &[KEYS, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[LAYER, QKV, ATTENTION, NET, ROUTED_WEIGHTS, SHARED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "200192", VOCABULARY),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["intermediate_size"], "6144", FEED_FORWARD),
    Key::read(&["moe_intermediate_size"], "1408", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_dense_layers"], "1", DENSE_FIRST),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "16384", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["num_experts"], "64", EXPERTS),
    Key::read(&["num_experts_per_tok"], "6", CHOSEN),
    Key::read(&["num_shared_experts"], "2", SHARED),
    Key::read(&["route_scale"], "1.0", SCALE),
    Key::read(
        &["global_attn_every_n_layers"],
        "4",
        "without `layer_types`, one layer in this number has no window and no positions",
    ),
    Key::read(&["sliding_window"], "1024", WINDOW),
    LAYER_TYPES,
    Key::read(&["mup_enabled"], "false", "embeddings are multiplied by the root of the stream's size"),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
    Key::only(&["score_func"], "\"sigmoid\"", "the class has no other"),
    Key::only(&["route_norm"], "true", "the class makes a token's weights add up to 1"),
    Key::only(
        &["n_group", "topk_group", "num_expert_groups", "num_limited_groups"],
        "1",
        "the class has no groups of experts",
    ),
    Key::nothing(&["use_grouped_mm", "load_balance_coeff"], UNREAD),
];

const LAYER: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.weight", &["norm1"]),
    HubTensor::vector("post_attention_layernorm.weight", &["post_norm1"]),
    HubTensor::vector("pre_mlp_layernorm.weight", &["norm2"]),
    HubTensor::vector("post_mlp_layernorm.weight", &["post_norm2"]),
    HubTensor::linear("self_attn.gate_proj.weight", &["wg"]),
    HubTensor::linear("mlp.router.gate.weight", &["router"]),
    HubTensor::vector("mlp.expert_bias", &["router_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    let every: u32 = fields.get("global_attn_every_n_layers")?;
    positive("global_attn_every_n_layers", every.into())?;
    let layers = Limited { is_needed: true, ..Limited::sliding(fields, base.layers)? };
    let window = layers.read(fields, |layer| (layer + 1).is_multiple_of(every))?;
    let is_scaled: bool = fields.get("mup_enabled")?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        norms: Norms::Both,
        nope: window.map_or(LayerSet::First(base.layers), |window| window.full),
        window,
        embedding_scale: if is_scaled { EmbeddingScale::Root } else { EmbeddingScale::One },
        head_gate: HeadGate::Sigmoid,
        qk_norm: QkNorm::Heads,
        experts: experts(fields, base.layers)?,
        ..base
    }
    .into())
}

fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let first: u32 = fields.get("num_dense_layers")?;
    let Some(dense) = dense(layers, "num_dense_layers", |layer| layer < first)? else { return Ok(None) };
    let chosen = sigmoid(fields, "num_experts", "moe_intermediate_size")?;
    let shared = fields.get::<u64>("num_shared_experts")?.saturating_mul(chosen.feed_forward);
    Ok(Some(Experts { dense, shared, scale: fields.get("route_scale")?, ..chosen }))
}
