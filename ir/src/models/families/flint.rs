//! Flint: sinks, windows, no positions in layers without one, and experts chosen by sigmoids.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "flint",
    class: "FlintForCausalLM",
    keys: Keys { class: "FlintConfig", lists: &[KEYS, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, NET, ROUTED_WEIGHTS, OWN], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["router_aux_loss_coef"], "0.0005", "its factor"),
    Key::read(&["vocab_size"], "150144", VOCABULARY),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["intermediate_size"], "6144", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "49", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "262144", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["sliding_window"], "513", WINDOW),
    Key::read(&["decoder_sparse_step"], "1", "one layer in this number has experts"),
    Key::read(&["moe_intermediate_size"], "512", EXPERT_SIZE),
    Key::read(&["shared_expert_intermediate_size"], "1024", "the same of the expert that all tokens take"),
    Key::read(&["num_experts_per_tok"], "6", CHOSEN),
    Key::read(&["num_experts"], "256", EXPERTS),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::read(&["mlp_only_layers"], "null", "layers without experts; null: the first two"),
    LAYER_TYPES,
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

/// The expert that all tokens take, and sinks, in memory and in files.
const OWN: &[HubTensor] = &[
    HubTensor::vector("self_attn.sinks", &["sink"]).when(When::File("self_attn.sinks")),
    HubTensor::vector("self_attn.softmax_offset", &["sink"]),
    HubTensor::linear("mlp.shared_expert.gate_proj.weight", &["shared_gate"]),
    HubTensor::linear("mlp.shared_expert.up_proj.weight", &["shared_up"]),
    HubTensor::linear("mlp.shared_expert.down_proj.weight", &["shared_down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    let last = base.layers.saturating_sub(1);
    let layers = Limited { is_needed: true, ..Limited::sliding(fields, base.layers)? };
    let window = layers.read(fields, |layer| layer < 2 || layer % 4 == 1 || layer == last)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        nope: window.map_or(LayerSet::First(base.layers), |window| window.full),
        window,
        sinks: Sinks::All,
        qk_norm: QkNorm::Heads,
        experts: experts(fields, base.layers)?,
        ..base
    }
    .into())
}

fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let step: u32 = fields.get("decoder_sparse_step")?;
    positive("decoder_sparse_step", step.into())?;
    let only: Vec<u32> = fields.optional("mlp_only_layers")?.unwrap_or(vec![0, 1]);
    let dense = dense(layers, "mlp_only_layers", |layer| only.contains(&layer) || !(layer + 1).is_multiple_of(step))?;
    let Some(dense) = dense else { return Ok(None) };
    let (shared, renormalise) = (fields.get("shared_expert_intermediate_size")?, fields.get("norm_topk_prob")?);
    let experts = softmax(fields, "num_experts", "moe_intermediate_size")?;
    Ok(Some(Experts { dense, shared, renormalise, sigmoid: true, ..experts }))
}
