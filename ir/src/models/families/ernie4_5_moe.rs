//! ERNIE 4.5 with experts: a softmax, with a bias for the choice.

use super::ernie4_5;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "ernie4_5_moe",
    class: "Ernie4_5_MoeForCausalLM",
    keys: Keys { class: "Ernie4_5_MoeConfig", lists: &[KEYS, ONE_TYPE, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        inner: &[NORMS, QKV, ATTENTION, NET, CHOICE, ROUTED_WEIGHTS, SHARED_WEIGHTS],
        ..ernie4_5::ERNIE
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "103424", VOCABULARY),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["intermediate_size"], "12288", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "28", LAYERS),
    Key::read(&["num_attention_heads"], "20", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::only(&["use_bias"], "false", "products have no bias"),
    Key::read(&["moe_intermediate_size"], "1536", EXPERT_SIZE),
    Key::alias(&["moe_k"], "num_experts_per_tok"),
    Key::alias(&["moe_num_experts"], "num_experts"),
    Key::read(&["moe_num_shared_experts"], "2", SHARED),
    Key::read(&["moe_layer_start_index"], "1", "the first layer that may have experts"),
    Key::read(&["moe_layer_end_index"], "-1", "the last one; -1: that of the model"),
    Key::read(&["moe_layer_interval"], "1", "one layer in this number has experts"),
    Key::nothing(&["moe_norm_min"], "the sum of weights is never that small"),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "500000.0", THETA),
    WHOLE_HEADS,
    Key::read(&["num_experts"], "64", EXPERTS),
    Key::read(&["num_experts_per_tok"], "6", CHOSEN),
];

/// The bias for the choice.
const CHOICE: &[HubTensor] = &[
    HubTensor::linear("mlp.gate.moe_statics.e_score_correction_bias", &["router_bias"])
        .when(When::File("mlp.gate.moe_statics.e_score_correction_bias")),
    HubTensor::linear("mlp.moe_statics.e_score_correction_bias", &["router_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = ernie4_5::ernie(fields)?;
    Ok(LlamaConfig { experts: experts(fields, base.layers)?, ..base }.into())
}

fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let (start, end): (u32, i64) = (fields.get("moe_layer_start_index")?, fields.get("moe_layer_end_index")?);
    let interval: u32 = fields.get("moe_layer_interval")?;
    positive("moe_layer_interval", interval.into())?;
    let end = if end < 0 { i64::from(layers) + end } else { end };
    let dense = dense(layers, "moe_layer_interval", |layer| {
        !(layer + 1).is_multiple_of(interval) || layer < start || i64::from(layer) > end
    })?;
    let Some(dense) = dense else { return Ok(None) };
    let chosen = softmax(fields, "num_experts", "moe_intermediate_size")?;
    let shared = fields.get::<u64>("moe_num_shared_experts")?.saturating_mul(chosen.feed_forward);
    Ok(Some(Experts { dense, shared, bias: true, ..chosen }))
}
