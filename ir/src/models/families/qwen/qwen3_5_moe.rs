//! Qwen3.5 with experts, its text models.

use super::prelude::*;
use super::qwen3_5::{self, ATTENDING, DELTA_WEIGHTS};
use super::qwen3_next::{self, QWEN_GAINS, QWEN_GATED, QWEN_OUTER};
use super::{qwen2, qwen2_moe};

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "qwen3_5_moe_text",
    class: "Qwen3_5MoeForCausalLM",
    keys: Keys {
        class: "Qwen3_5MoeTextConfig",
        lists: &[KEYS, ATTENDING, qwen3_next::DELTA, FIXED_NET, ROUTED, ROUTER_LOSS, qwen2::QWEN, ROTARY, EVERY],
    },
    wholes: &[Composite { tied: Tied::Whole, ..Composite::of("qwen3_5_moe") }],
    weights: Weights {
        outer: QWEN_OUTER,
        inner: &[QWEN_GAINS, DELTA_WEIGHTS, QWEN_GATED, QKV, ATTENTION, ROUTED_WEIGHTS, qwen2_moe::SHARED_WEIGHTS],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["num_hidden_layers"], "40", LAYERS),
    Key::read(&["num_key_value_heads"], "2", KV_HEADS),
    Key::read(&["num_experts"], "256", EXPERTS),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::read(&["moe_intermediate_size"], "512", EXPERT_SIZE),
    Key::read(&["shared_expert_intermediate_size"], "512", "size of the expert that all tokens take"),
    Key::nothing(&["intermediate_size"], UNREAD),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = qwen3_5::base(fields, "moe_intermediate_size")?;
    let shared = fields.get("shared_expert_intermediate_size")?;
    let experts = softmax(fields, "num_experts", "moe_intermediate_size")?;
    Ok(LlamaConfig { experts: Some(Experts { shared, shared_gate: true, ..experts }), ..base }.into())
}
