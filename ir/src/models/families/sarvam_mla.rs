//! Sarvam with latent attention: DeepSeek-V3.

use super::prelude::*;
use super::{deepseek_v2, deepseek_v3};

pub(super) const FAMILY: Family = Family {
    model_type: "sarvam_mla",
    class: "DeepseekV3ForCausalLM",
    keys: Keys {
        class: "SarvamMLAConfig",
        lists: &[KEYS, deepseek_v3::KEYS, ONE_TYPE, FIXED_NET, ROUTED, FURTHER, deepseek_v2::DEEPSEEK, ROTARY, EVERY],
    },
    wholes: &[],
    weights: deepseek_v3::FAMILY.weights,
    read: deepseek_v3::read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "262144", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "16384", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["num_key_value_heads"], "null", "the number of query heads"),
    Key::read(&["n_routed_experts"], "128", EXPERTS),
    Key::alias(&["num_experts", "num_local_experts"], "n_routed_experts"),
    Key::alias(&["num_shared_experts"], "n_shared_experts"),
    Key::read(&["q_lora_rank"], "null", "size of the vector that queries come from; null: none"),
    Key::read(&["n_group"], "1", GROUPS),
    Key::read(&["topk_group"], "1", OPEN_GROUPS),
    Key::read(&["first_k_dense_replace"], "1", DENSE_FIRST),
    Key::read(&["initializer_range"], "0.006", DEVIATION),
    Key::nothing(&["q_head_dim"], "the class sets it by the sizes of the parts of a head"),
];
