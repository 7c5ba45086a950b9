//! Sarvam with grouped queries: GLM-4.5, all of whose heads turn.

use super::glm4_moe;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "sarvam_moe",
    class: "Glm4MoeForCausalLM",
    keys: Keys { class: "SarvamMoEConfig", lists: &[KEYS, glm4_moe::KEYS, ROUTED, FURTHER, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        embedding: "model.word_embeddings.weight",
        outer: &[
            HubTensor::table("model.embed_tokens.weight", &["emb"]).when(When::File("model.embed_tokens.weight")),
            HubTensor::table("model.word_embeddings.weight", &["emb"]),
            HubTensor::vector("model.norm.weight", &["final_norm"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[NORMS, OF_CLASS, OF_FILES, NET, ROUTED_WEIGHTS, SHARED_WEIGHTS],
        ..USUAL
    },
    read: glm4_moe::read,
};

/// True where tensors have the names of the class.
const HAS_OWN: When = When::File("self_attn.o_proj.weight");

/// Attention, as the class has it.
const OF_CLASS: &[HubTensor] = &[
    HubTensor::linear("self_attn.q_proj.weight", &["wq"]).when(HAS_OWN),
    HubTensor::linear("self_attn.k_proj.weight", &["wk"]).when(HAS_OWN),
    HubTensor::linear("self_attn.v_proj.weight", &["wv"]).when(HAS_OWN),
    HubTensor::vector("self_attn.q_proj.bias", &["bq"]).when(HAS_OWN),
    HubTensor::vector("self_attn.k_proj.bias", &["bk"]).when(HAS_OWN),
    HubTensor::vector("self_attn.v_proj.bias", &["bv"]).when(HAS_OWN),
    HubTensor::linear("self_attn.o_proj.weight", &["wo"]).of_inputs(3).when(HAS_OWN),
    HubTensor::vector("self_attn.q_norm.weight", &["q_norm"]).when(HAS_OWN),
    HubTensor::vector("self_attn.k_norm.weight", &["k_norm"]).when(HAS_OWN),
    HubTensor::vector("mlp.gate.e_score_correction_bias", &["router_bias"]).when(HAS_OWN),
];

/// Attention, and the bias of routers, as files have them.
const OF_FILES: &[HubTensor] = &[
    HubTensor::linear("attention.query_key_value.weight", &["wq", "wk", "wv"]),
    HubTensor::vector("attention.query_key_value.bias", &["bq", "bk", "bv"]),
    HubTensor::linear("attention.dense.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("attention.query_layernorm.weight", &["q_norm"]),
    HubTensor::vector("attention.key_layernorm.weight", &["k_norm"]),
    HubTensor::vector("mlp.gate.expert_bias", &["router_bias"]),
];

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "262144", VOCABULARY),
    Key::read(&["intermediate_size"], "8192", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "19", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["head_dim"], "64", HEAD_SIZE),
    Key::read(&["rms_norm_eps"], "1e-6", NORM_EPS),
    Key::read(&["rope_theta"], "8000000.0", THETA),
    Key::read(&["use_qk_norm"], "true", HEADS_NORMED),
    Key::alias(&["num_experts", "num_local_experts"], "n_routed_experts"),
    Key::alias(&["num_shared_experts"], "n_shared_experts"),
    Key::alias(&["use_qkv_bias"], "attention_bias"),
    Key::read(&["moe_intermediate_size"], "1024", EXPERT_SIZE),
    Key::read(&["num_experts_per_tok"], "6", CHOSEN),
    Key::read(&["routed_scaling_factor"], "2.5", SCALE),
    Key::read(&["partial_rotary_factor"], "1.0", TURNED),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["initializer_range"], "0.006", DEVIATION),
];
