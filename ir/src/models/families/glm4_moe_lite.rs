//! GLM-4.7 Flash: DeepSeek-V3 by other keys.

use super::deepseek_v2;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "glm4_moe_lite",
    class: "Glm4MoeLiteForCausalLM",
    keys: Keys {
        class: "Glm4MoeLiteConfig",
        lists: &[KEYS, ONE_TYPE, FIXED_NET, ROUTED, deepseek_v2::DEEPSEEK, ROTARY, EVERY],
    },
    wholes: &[],
    weights: Weights {
        inner: &[NORMS, deepseek_v2::LATENT, NET, ROUTED_WEIGHTS, SHARED_WEIGHTS],
        pairs: Pairs::Stated("rope_interleave"),
        turned: deepseek_v2::TURNING,
        further: 1,
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "154880", VOCABULARY),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["intermediate_size"], "10240", FEED_FORWARD),
    Key::read(&["moe_intermediate_size"], "1536", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "47", LAYERS),
    Key::read(&["num_attention_heads"], "20", HEADS),
    Key::read(&["num_key_value_heads"], "20", "the number of query heads"),
    Key::read(&["n_shared_experts"], "1", SHARED),
    Key::read(&["n_routed_experts"], "64", EXPERTS),
    Key::read(&["routed_scaling_factor"], "1.8", SCALE),
    Key::read(&["kv_lora_rank"], "512", "size of the vector that keys and values come from"),
    Key::read(&["q_lora_rank"], "768", "size of the vector that queries come from; null: none"),
    Key::read(&["qk_rope_head_dim"], "64", "size of the part with positions"),
    Key::read(&["v_head_dim"], "256", "size of values"),
    Key::read(&["qk_nope_head_dim"], "192", "size of the part of a head without positions"),
    Key::read(&["n_group"], "1", GROUPS),
    Key::read(&["topk_group"], "1", OPEN_GROUPS),
    Key::read(&["num_experts_per_tok"], "4", CHOSEN),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::read(&["max_position_embeddings"], "202752", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::alias(&["num_local_experts"], "n_routed_experts"),
    Key::alias(&["head_dim"], "qk_rope_head_dim"),
    WHOLE_HEADS,
    Key::only(&["topk_method"], "\"noaux_tc\"", "the class has no other"),
    Key::only(&["scoring_func"], "\"sigmoid\"", "the class has no other"),
    Key::nothing(&["num_nextn_predict_layers", "num_mtp_layers"], UNREAD),
    Key::read(&["first_k_dense_replace"], "1", DENSE_FIRST),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = deepseek_v2::latent(fields)?;
    Ok(LlamaConfig { experts: experts(fields, base.layers)?, ..base }.into())
}

/// Reads experts of layers that a key lists.
pub(super) fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let Some(dense) = dense_types(fields, layers, fields.get("first_k_dense_replace")?)? else { return Ok(None) };
    let chosen = sigmoid(fields, "n_routed_experts", "moe_intermediate_size")?;
    let limited = deepseek_v2::limited(fields, Some(deepseek_v2::groups(fields, 2)?), chosen)?;
    Ok(Some(Experts { dense, renormalise: fields.get("norm_topk_prob")?, ..limited }))
}
