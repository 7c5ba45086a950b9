//! Names of weights that several families share.

use crate::models::weights::{HubTensor, Join, Pairs, Weights, When};

/// The names of Llama.
pub(in crate::models::families) const USUAL: Weights = Weights {
    base: "model.",
    layers: "layers.",
    head: "lm_head.weight",
    embedding: "model.embed_tokens.weight",
    outer: &[
        HubTensor::table("model.embed_tokens.weight", &["emb"]),
        HubTensor::vector("model.norm.weight", &["final_norm"]),
        HubTensor::linear("lm_head.weight", &["out"]),
    ],
    inner: &[NORMS, QKV, ATTENTION, NET],
    pairs: Pairs::Apart,
    turned: &[],
    constants: &[],
    further: 0,
};

/// Norms of what branches read.
pub(in crate::models::families) const NORMS: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.weight", &["norm1"]),
    HubTensor::vector("post_attention_layernorm.weight", &["norm2"]),
];

/// Norms of what branches read, with biases.
pub(in crate::models::families) const LAYER_NORMS: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.weight", &["norm1"]),
    HubTensor::vector("input_layernorm.bias", &["norm1_bias"]),
    HubTensor::vector("post_attention_layernorm.weight", &["norm2"]),
    HubTensor::vector("post_attention_layernorm.bias", &["norm2_bias"]),
];

/// The tensors outside of layers, of which the norm has a bias.
pub(in crate::models::families) const LAYER_NORM_OUTER: &[HubTensor] = &[
    HubTensor::table("model.embed_tokens.weight", &["emb"]),
    HubTensor::vector("model.norm.weight", &["final_norm"]),
    HubTensor::vector("model.norm.bias", &["final_norm_bias"]),
    HubTensor::linear("lm_head.weight", &["out"]),
];

/// Queries, keys and values, each for itself.
pub(in crate::models::families) const QKV: &[HubTensor] = &[
    HubTensor::linear("self_attn.q_proj.weight", &["wq"]),
    HubTensor::linear("self_attn.k_proj.weight", &["wk"]),
    HubTensor::linear("self_attn.v_proj.weight", &["wv"]),
    HubTensor::vector("self_attn.q_proj.bias", &["bq"]),
    HubTensor::vector("self_attn.k_proj.bias", &["bk"]),
    HubTensor::vector("self_attn.v_proj.bias", &["bv"]),
];

/// The rest of attention.
pub(in crate::models::families) const ATTENTION: &[HubTensor] = &[
    HubTensor::linear("self_attn.o_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("self_attn.o_proj.bias", &["bo"]),
    HubTensor::vector("self_attn.q_norm.weight", &["q_norm"]),
    HubTensor::vector("self_attn.k_norm.weight", &["k_norm"]),
];

/// The feed-forward net.
pub(in crate::models::families) const NET: &[HubTensor] = &[
    HubTensor::linear("mlp.gate_proj.weight", &["gate"]),
    HubTensor::linear("mlp.up_proj.weight", &["up"]),
    HubTensor::linear("mlp.down_proj.weight", &["down"]),
    HubTensor::vector("mlp.gate_proj.bias", &["gate_bias"]),
    HubTensor::vector("mlp.up_proj.bias", &["up_bias"]),
    HubTensor::vector("mlp.down_proj.bias", &["down_bias"]),
];

/// In files of whose experts a tensor has all matrices of one kind, as the classes have them in memory.
pub(in crate::models::families) const IN_ONE: When = When::File("mlp.experts.down_proj");

/// Routers and routed experts.
pub(in crate::models::families) const ROUTED_WEIGHTS: &[HubTensor] = &[
    HubTensor::linear("mlp.gate.weight", &["router"]),
    HubTensor::vector("mlp.gate.e_score_correction_bias", &["router_bias"]),
    HubTensor::linear("mlp.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts().when(IN_ONE),
    HubTensor::linear("mlp.experts.down_proj", &["expert_down"]).of_experts().when(IN_ONE),
    HubTensor::linear("mlp.experts.{}.gate_proj.weight", &["expert_gate"]),
    HubTensor::linear("mlp.experts.{}.up_proj.weight", &["expert_up"]),
    HubTensor::linear("mlp.experts.{}.down_proj.weight", &["expert_down"]),
];

/// The expert that all tokens take.
pub(in crate::models::families) const SHARED_WEIGHTS: &[HubTensor] = &[
    HubTensor::linear("mlp.shared_experts.gate_proj.weight", &["shared_gate"]),
    HubTensor::linear("mlp.shared_experts.up_proj.weight", &["shared_up"]),
    HubTensor::linear("mlp.shared_experts.down_proj.weight", &["shared_down"]),
];

/// A layer that predicts further tokens has these besides those of any layer. One matrix reads the token, then what is given.
pub(in crate::models::families) const FURTHER_WEIGHTS: &[HubTensor] = &[
    HubTensor::vector("enorm.weight", &["enorm"]),
    HubTensor::vector("hnorm.weight", &["hnorm"]),
    HubTensor::linear("eh_proj.weight", &["token_proj", "hidden_proj"]).joined(Join::Inputs),
    HubTensor::vector("shared_head.norm.weight", &["head_norm"]),
];
