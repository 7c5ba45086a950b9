//! A.X K1: DeepSeek-V3 with norms of what experts give.

use super::prelude::*;
use super::{deepseek_v2, deepseek_v3, glm4_moe_lite};

pub(super) const FAMILY: Family = Family {
    model_type: "axk1",
    class: "AXK1ForCausalLM",
    keys: Keys {
        class: "AXK1Config",
        lists: &[KEYS, deepseek_v3::KEYS, ONE_TYPE, FIXED_NET, ROUTED, deepseek_v2::DEEPSEEK, ROTARY, EVERY],
    },
    wholes: &[],
    weights: Weights {
        inner: &[NORMS, deepseek_v2::LATENT, NET, ROUTED_WEIGHTS, SHARED_WEIGHTS, EXPERTS_NORM],
        further: 0,
        ..deepseek_v3::FAMILY.weights
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "163840", VOCABULARY),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["num_key_value_heads"], "64", "the number of query heads"),
    Key::read(&["n_routed_experts"], "192", EXPERTS),
    Key::read(&["max_position_embeddings"], "32768", CONTEXT),
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::read(&["first_k_dense_replace"], "1", DENSE_FIRST),
    Key::nothing(&["num_nextn_predict_layers", "num_mtp_layers"], UNREAD),
];

const EXPERTS_NORM: &[HubTensor] = &[
    HubTensor::vector("mlp.post_mlp_layernorm.weight", &["experts_norm"])
        .when(When::File("mlp.post_mlp_layernorm.weight")),
    HubTensor::vector("post_mlp_layernorm.weight", &["experts_norm"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = deepseek_v2::latent(fields)?;
    if fields.optional::<u64>("q_lora_rank")?.is_none() {
        return Err(unsupported("q_lora_rank", "null is not supported: queries come from a small vector".to_string()));
    }
    let experts = glm4_moe_lite::experts(fields, base.layers)?;
    Ok(LlamaConfig { experts: experts.map(|experts| Experts { normed: true, ..experts }), ..base }.into())
}
