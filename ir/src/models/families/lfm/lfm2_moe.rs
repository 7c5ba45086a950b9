//! LFM2 with experts that sigmoids choose.

use super::lfm2::{self, NET_OF_LFM, OUTER, PARTS, SHARED_KEYS};
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "lfm2_moe",
    class: "Lfm2MoeForCausalLM",
    keys: Keys { class: "Lfm2MoeConfig", lists: &[KEYS, SHARED_KEYS, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { outer: OUTER, inner: &[PARTS, QKV, NET_OF_LFM, EXPERTS_OF_LFM], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["intermediate_size"], "7168", FEED_FORWARD),
    Key::read(&["moe_intermediate_size"], "1792", EXPERT_SIZE),
    Key::read(&["num_dense_layers"], "2", DENSE_FIRST),
    Key::read(&["num_experts"], "32", EXPERTS),
    Key::read(&["num_experts_per_tok"], "4", CHOSEN),
    Key::read(&["use_expert_bias"], "true", "a number of each expert is added to its score for the choice"),
    Key::read(&["routed_scaling_factor"], "1.0", SCALE),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
];

/// In files of whose experts a tensor has all matrices of one kind.
const IN_ONE: When = When::File("feed_forward.experts.down_proj");

const EXPERTS_OF_LFM: &[HubTensor] = &[
    HubTensor::linear("feed_forward.gate.weight", &["router"]),
    HubTensor::vector("feed_forward.expert_bias", &["router_bias"]),
    HubTensor::linear("feed_forward.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts().when(IN_ONE),
    HubTensor::linear("feed_forward.experts.down_proj", &["expert_down"]).of_experts().when(IN_ONE),
    HubTensor::linear("feed_forward.experts.{}.w1.weight", &["expert_gate"]),
    HubTensor::linear("feed_forward.experts.{}.w3.weight", &["expert_up"]),
    HubTensor::linear("feed_forward.experts.{}.w2.weight", &["expert_down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = lfm2::base(fields, |_| false)?;
    let first: u32 = fields.get("num_dense_layers")?;
    let experts = match dense(base.layers, "num_dense_layers", |layer| layer < first)? {
        Some(dense) => Some(Experts {
            dense,
            bias: fields.get("use_expert_bias")?,
            renormalise: fields.get("norm_topk_prob")?,
            scale: fields.get("routed_scaling_factor")?,
            least_sum: 1e-6,
            ..sigmoid(fields, "num_experts", "moe_intermediate_size")?
        }),
        None => None,
    };
    Ok(LlamaConfig { experts, ..base }.into())
}
