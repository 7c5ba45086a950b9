//! Cohere 2 with experts: dense layers in front, and positions in them where they see all tokens.

use super::cohere::{self, COHERE};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "cohere2_moe",
    class: "Cohere2MoeForCausalLM",
    keys: Keys { class: "Cohere2MoeConfig", lists: &[KEYS, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, NET, ROUTED_WEIGHTS, SHARED_WEIGHTS], ..COHERE },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "256000", VOCABULARY),
    Key::read(&["hidden_size"], "8192", HIDDEN),
    Key::read(&["intermediate_size"], "22528", EXPERT_SIZE),
    Key::read(
        &["prefix_dense_intermediate_size"],
        "null",
        "size of the feed-forward net of dense layers; null: that of experts",
    ),
    Key::read(&["logit_scale"], "0.0625", "factor of logits"),
    Key::read(&["num_hidden_layers"], "40", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "8192", CONTEXT),
    Key::read(&["layer_norm_eps"], "1e-5", LAYER_NORM_EPS),
    Key::read(&["rms_norm_eps"], "null", "added in norms by the mean square; null: norms are layer norms"),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["sliding_window"], "4096", WINDOW),
    LAYER_TYPES,
    Key::read(&["sliding_window_pattern"], "4", "without `layer_types`, one layer in this number has no window"),
    Key::read(
        &["prefix_dense_sliding_window_pattern"],
        "1",
        "the same of dense layers; 1: they have positions all the same",
    ),
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::read(&["first_k_dense_replace"], "0", DENSE_FIRST),
    Key::read(&["num_experts"], "8", EXPERTS),
    Key::read(&["num_experts_per_tok"], "2", CHOSEN),
    Key::read(&["num_shared_experts"], "0", SHARED),
    Key::read(&["shared_expert_combination_strategy"], "\"average\"", "average or sum of routed and shared experts"),
    Key::read(&["expert_selection_fn"], "\"softmax\"", "softmax or sigmoid of the chosen logits"),
    Key::read(&["norm_topk_prob"], "true", "sigmoids of a token are made to add up to 1"),
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
    WHOLE_HEADS,
];

const NORMS: &[HubTensor] = &[HubTensor::vector("input_layernorm.weight", &["norm1"])];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = cohere::cohere(fields)?;
    let rms: Option<f64> = fields.optional("rms_norm_eps")?;
    let front: u32 = fields.get("first_k_dense_replace")?;
    let (pattern, dense_pattern): (u32, u32) =
        (fields.get("sliding_window_pattern")?, fields.get("prefix_dense_sliding_window_pattern")?);
    positive("sliding_window_pattern", pattern.into())?;
    positive("prefix_dense_sliding_window_pattern", dense_pattern.into())?;
    let layers = Limited { is_needed: true, ..Limited::sliding(fields, base.layers)? };
    // Patterns count from the first layer with experts.
    let window = layers.read(fields, |layer| match layer.checked_sub(front) {
        Some(behind) => (behind + 1).is_multiple_of(pattern),
        None => (layer + 1).is_multiple_of(dense_pattern),
    })?;
    let dense = dense_types(fields, base.layers, front)?;
    let turning = dense.unwrap_or(LayerSet::First(base.layers));
    let nope = LayerSet::of(base.layers, |layer| {
        let is_full = window.is_none_or(|window| window.full.contains(layer));
        is_full && !(dense_pattern == 1 && turning.contains(layer))
    })
    .ok_or_else(|| unsupported("layer_types", "of more than 128 layers they must follow a rule".to_string()))?;
    let size = fields.optional("prefix_dense_intermediate_size")?;
    Ok(LlamaConfig {
        feed_forward: size.unwrap_or(base.feed_forward),
        norm: if rms.is_some() { Norm::Rms } else { base.norm },
        norm_eps: rms.unwrap_or(base.norm_eps),
        nope,
        window,
        experts: dense.map(|dense| experts(fields, dense)).transpose()?,
        ..base
    }
    .into())
}

fn experts(fields: &Fields, dense: LayerSet) -> Result<Experts, ConfigError> {
    let chosen = softmax(fields, "num_experts", "intermediate_size")?;
    let shared = fields.get::<u64>("num_shared_experts")?.saturating_mul(chosen.feed_forward);
    let (scores, sum): (String, String) =
        (fields.get("expert_selection_fn")?, fields.get("shared_expert_combination_strategy")?);
    let is_sigmoid = one_of("expert_selection_fn", &scores, ["softmax", "sigmoid"])? == 1;
    let averaged = one_of("shared_expert_combination_strategy", &sum, ["sum", "average"])? == 1;
    let renormalise = !is_sigmoid || fields.get("norm_topk_prob")?;
    Ok(Experts { dense, shared, averaged, sigmoid: is_sigmoid, by_logits: is_sigmoid, renormalise, ..chosen })
}

/// The place of a value among two.
fn one_of(key: &str, stated: &str, known: [&str; 2]) -> Result<usize, ConfigError> {
    known
        .iter()
        .position(|name| *name == stated)
        .ok_or_else(|| unsupported(key, format!("{stated} is not supported, only {} and {}", known[0], known[1])))
}
