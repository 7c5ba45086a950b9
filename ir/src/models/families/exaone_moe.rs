//! K-EXAONE: EXAONE 4 with the experts of DeepSeek-V3, and norms of what branches read.

use super::prelude::*;
use super::{deepseek_v2, exaone4};

pub(super) const FAMILY: Family = Family {
    model_type: "exaone_moe",
    class: "ExaoneMoeForCausalLM",
    keys: Keys { class: "ExaoneMoeConfig", lists: &[KEYS, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, NET, CHOICE, ROUTED_WEIGHTS, SHARED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "102400", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "16384", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "32", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["sliding_window"], "4096", WINDOW),
    Key::read(
        &["sliding_window_pattern"],
        "4",
        "without `layer_types`, one layer in this number has no window and no positions",
    ),
    LAYER_TYPES,
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::read(&["first_k_dense_replace"], "1", DENSE_FIRST),
    Key::read(&["moe_intermediate_size"], "1024", EXPERT_SIZE),
    Key::read(&["num_experts"], "64", EXPERTS),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::alias(&["num_shared_experts"], "n_shared_experts"),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::read(&["routed_scaling_factor"], "2.5", SCALE),
    Key::read(&["n_group"], "1", GROUPS),
    Key::read(&["topk_group"], "1", OPEN_GROUPS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
    WHOLE_HEADS,
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["n_shared_experts"], "1", SHARED),
];

/// The bias for the choice, in memory and in files.
const CHOICE: &[HubTensor] = &[
    HubTensor::vector("mlp.gate.e_score_correction_bias", &["router_bias"])
        .when(When::File("mlp.gate.e_score_correction_bias")),
    HubTensor::vector("mlp.e_score_correction_bias", &["router_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = exaone4::exaone(fields)?;
    Ok(LlamaConfig { experts: experts(fields, base.layers)?, ..base }.into())
}

fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let Some(dense) = dense_types(fields, layers, fields.get("first_k_dense_replace")?)? else { return Ok(None) };
    let chosen = sigmoid(fields, "num_experts", "moe_intermediate_size")?;
    let limited = deepseek_v2::limited(fields, Some(deepseek_v2::groups(fields, 2)?), chosen)?;
    Ok(Some(Experts { dense, renormalise: fields.get("norm_topk_prob")?, ..limited }))
}
