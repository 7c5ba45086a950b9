//! Kolibri: norms of both sides, windows, no positions in layers without one, and experts chosen by logits.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "kolibri1",
    class: "Kolibri1ForCausalLM",
    keys: Keys { class: "Kolibri1Config", lists: &[KEYS, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[OWN, NORMS, QKV, ATTENTION, ROUTED_WEIGHTS, SHARED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "128000", VOCABULARY),
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["num_hidden_layers"], "50", LAYERS),
    Key::read(&["num_attention_heads"], "48", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "262144", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["sliding_window"], "513", WINDOW),
    Key::read(&["moe_intermediate_size"], "512", EXPERT_SIZE),
    Key::read(&["num_experts_per_tok"], "6", CHOSEN),
    Key::read(&["num_experts"], "384", EXPERTS),
    Key::read(&["norm_topk_prob"], "false", RENORMALISE),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["shared_expert_intermediate_size"], "512", "the same of the expert that all tokens take"),
    LAYER_TYPES,
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::nothing(&["intermediate_size"], UNREAD),
    Key::alias(&["num_local_experts"], "num_experts"),
];

/// Norms of what branches give and the bias for the choice, in memory and in files.
const OWN: &[HubTensor] = &[
    HubTensor::vector("post_self_attn_layernorm.weight", &["post_norm1"]).when(IN_MEMORY),
    HubTensor::vector("post_mlp_layernorm.weight", &["post_norm2"]).when(IN_MEMORY),
    HubTensor::vector("mlp.gate.e_score_correction_bias", &["router_bias"]).when(IN_MEMORY),
    HubTensor::vector("post_attn_norm.weight", &["post_norm1"]),
    HubTensor::vector("post_ffn_norm.weight", &["post_norm2"]),
    HubTensor::vector("moe.router.expert_bias", &["router_bias"]),
];

/// The names are those of the class.
const IN_MEMORY: When = When::File("post_mlp_layernorm.weight");

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "moe_intermediate_size", ..Base::USUAL }.read(fields)?;
    let layers = Limited { is_needed: true, ..Limited::sliding(fields, base.layers)? };
    let has_window = layers.tokens.is_some();
    let window = layers.read(fields, |layer| (layer + 1).is_multiple_of(5))?;
    let experts = sigmoid(fields, "num_experts", "moe_intermediate_size")?;
    let (shared, renormalise) = (fields.get("shared_expert_intermediate_size")?, fields.get("norm_topk_prob")?);
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        norms: Norms::Both,
        nope: window
            .map_or(if has_window { LayerSet::First(base.layers) } else { LayerSet::None }, |window| window.full),
        window,
        qk_norm: QkNorm::Heads,
        experts: Some(Experts { by_logits: true, shared, renormalise, ..experts }),
        ..base
    }
    .into())
}
