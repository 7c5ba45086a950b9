//! A.X K2: DeepSeek-V3.2 with gates of norms, and of what heads give.

use super::deepseek::{deepseek_v2, deepseek_v3, deepseek_v32};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "axk2",
    class: "AXK2ForCausalLM",
    keys: Keys {
        class: "AXK2Config",
        lists: &[
            KEYS,
            deepseek_v32::INDEXED,
            deepseek_v3::KEYS,
            FIXED_NET,
            ROUTED,
            deepseek_v2::DEEPSEEK,
            ROTARY,
            EVERY,
        ],
    },
    wholes: &[],
    weights: Weights {
        inner: &[GATED_NORMS, QUERIES, deepseek_v2::LATENT, deepseek_v32::INDEXER, NET, ROUTED_WEIGHTS, SHARED_WEIGHTS],
        pairs: Pairs::Adjacent,
        turned: deepseek_v2::TURNING,
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "163840", VOCABULARY),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["intermediate_size"], "5120", FEED_FORWARD),
    Key::read(&["moe_intermediate_size"], "512", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "48", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::nothing(&["num_key_value_heads"], "heads share one key"),
    Key::read(&["n_routed_experts"], "128", EXPERTS),
    Key::alias(&["num_local_experts", "num_experts"], "n_routed_experts"),
    Key::read(&["kv_lora_rank"], "128", "size of the vector that keys and values come from"),
    Key::read(&["q_lora_rank"], "384", "size of the vector that queries come from"),
    Key::read(&["qk_rope_head_dim"], "32", "size of the part with positions"),
    Key::read(&["qk_nope_head_dim"], "64", "size of the part of a head without positions"),
    Key::read(&["v_head_dim"], "64", "size of values"),
    Key::only(&["n_group", "topk_group"], "null", "a token may choose experts of all groups"),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::read(&["first_k_dense_replace"], "1", DENSE_FIRST),
    Key::read(&["index_n_heads"], "16", "heads of an indexer"),
    Key::read(&["gated_norm_rank"], "16", "size of the vector that gates of norms come from"),
    Key::nothing(&["num_nextn_predict_layers", "num_mtp_layers"], UNREAD),
];

/// Norms and their gates, in memory and in files; before a dense net there are none.
const GATED_NORMS: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.norm.weight", &["norm1"]),
    HubTensor::linear("input_layernorm.mlp.fc1.weight", &["norm1_down"]).when(IN_MEMORY),
    HubTensor::linear("input_layernorm.mlp.fc2.weight", &["norm1_up"]).when(IN_MEMORY),
    HubTensor::linear("input_layernorm.W_down.weight", &["norm1_down"]),
    HubTensor::linear("input_layernorm.W_up.weight", &["norm1_up"]),
    HubTensor::vector("post_attention_layernorm.norm.weight", &["norm2"]).when(When::Param("norm2_down")),
    HubTensor::vector("post_attention_layernorm.weight", &["norm2"]),
    HubTensor::linear("post_attention_layernorm.mlp.fc1.weight", &["norm2_down"]).when(IN_MEMORY),
    HubTensor::linear("post_attention_layernorm.mlp.fc2.weight", &["norm2_up"]).when(IN_MEMORY),
    HubTensor::linear("post_attention_layernorm.W_down.weight", &["norm2_down"]),
    HubTensor::linear("post_attention_layernorm.W_up.weight", &["norm2_up"]),
];

/// In files with the names that the class has in memory.
const IN_MEMORY: When = When::File("input_layernorm.mlp.fc1.weight");

/// Queries and gates of heads, head by head.
const QUERIES: &[HubTensor] = &[
    HubTensor::linear("self_attn.q_gate_proj.weight", &["wqn", "wqr", "wg"]).joined(Join::Heads).when(IN_MEMORY),
    HubTensor::linear("self_attn.q_b_proj.weight", &["wqn", "wqr", "wg"]).joined(Join::Heads),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = deepseek_v32::attending(fields, LayerSet::None)?;
    let latent = base.latent.map(|latent| Latent { gated: true, ..latent });
    let norm_gate = Some(fields.get("gated_norm_rank")?);
    Ok(LlamaConfig { latent, norm_gate, experts: experts(fields, base.layers)?, ..base }.into())
}

fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let Some(dense) = dense_types(fields, layers, fields.get("first_k_dense_replace")?)? else { return Ok(None) };
    let chosen = sigmoid(fields, "n_routed_experts", "moe_intermediate_size")?;
    let limited = deepseek_v2::limited(fields, None, chosen)?;
    Ok(Some(Experts { dense, renormalise: fields.get("norm_topk_prob")?, ..limited }))
}
