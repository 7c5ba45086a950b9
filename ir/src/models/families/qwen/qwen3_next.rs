//! Qwen3-Next: gated delta rules in place of attention in most layers, gates of attention's heads, and experts.

use super::prelude::*;
use super::{qwen2, qwen2_moe};

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "qwen3_next",
    class: "Qwen3NextForCausalLM",
    keys: Keys {
        class: "Qwen3NextConfig",
        lists: &[KEYS, DELTA, FIXED_NET, ROUTED, ROUTER_LOSS, qwen2::QWEN, qwen2_moe::QWEN_MOE, ROTARY, EVERY],
    },
    wholes: &[],
    weights: Weights {
        outer: QWEN_OUTER,
        inner: &[QWEN_GAINS, QWEN_DELTA, QWEN_GATED, QKV, ATTENTION, NET, ROUTED_WEIGHTS, qwen2_moe::SHARED_WEIGHTS],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["num_hidden_layers"], "48", LAYERS),
    Key::read(&["intermediate_size"], "5632", FEED_FORWARD),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["num_key_value_heads"], "2", KV_HEADS),
    Key::read(&["head_dim"], "256", HEAD_SIZE),
    Key::read(&["rms_norm_eps"], "1e-6", NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["partial_rotary_factor"], "0.25", TURNED),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["num_experts"], "512", EXPERTS),
    Key::read(&["num_experts_per_tok"], "10", CHOSEN),
    Key::read(&["moe_intermediate_size"], "512", EXPERT_SIZE),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::read(&["shared_expert_intermediate_size"], "512", "size of the expert that all tokens take"),
];

/// The keys of gated delta rules.
pub(in crate::models::families) const DELTA: &[Key] = &[
    Key::read(&["layer_types"], "null", "linear_attention or full_attention, by layer"),
    Key::read(&["full_attention_interval"], "4", "without `layer_types`, one layer in this number has attention"),
    Key::read(&["linear_conv_kernel_dim"], "4", "taps of the convolutions of a delta rule"),
    Key::read(&["linear_key_head_dim"], "128", "size of a delta rule's keys"),
    Key::read(&["linear_value_head_dim"], "128", "size of its values"),
    Key::read(&["linear_num_key_heads"], "16", "its heads of keys"),
    Key::read(&["linear_num_value_heads"], "32", "its heads of values"),
];

/// The tensors outside of layers.
pub(in crate::models::families) const QWEN_OUTER: &[HubTensor] = &[
    HubTensor::table("model.embed_tokens.weight", &["emb"]),
    HubTensor::vector("model.norm.weight", &["final_norm"]).around_one(),
    HubTensor::linear("lm_head.weight", &["out"]),
];

/// Norms, whose gains are relative to 1.
pub(in crate::models::families) const QWEN_GAINS: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.weight", &["norm1"]).around_one(),
    HubTensor::vector("post_attention_layernorm.weight", &["norm2"]).around_one(),
    HubTensor::vector("self_attn.q_norm.weight", &["q_norm"]).around_one(),
    HubTensor::vector("self_attn.k_norm.weight", &["k_norm"]).around_one(),
];

/// The delta rule. One matrix has what each head of keys needs together, but for beta and decay, which have another one.
const QWEN_DELTA: &[HubTensor] = &[
    HubTensor::linear("linear_attn.in_proj_qkvz.weight", &["wmq", "wmk", "wmv", "wgate"]).joined(Join::Groups),
    HubTensor::linear("linear_attn.in_proj_ba.weight", &["wbeta", "wdecay"]).joined(Join::Groups),
    HubTensor::vector("linear_attn.conv1d.weight", &["conv_mq", "conv_mk", "conv_mv"]).shaped(FileShape::Taps),
    HubTensor::vector("linear_attn.A_log", &["a_log"]),
    HubTensor::vector("linear_attn.dt_bias", &["dt_bias"]),
    HubTensor::vector("linear_attn.norm.weight", &["scan_norm"]),
    HubTensor::linear("linear_attn.out_proj.weight", &["wmo"]).of_inputs(3),
];

/// Queries and the gates of their heads, head by head.
pub(in crate::models::families) const QWEN_GATED: &[HubTensor] =
    &[HubTensor::linear("self_attn.q_proj.weight", &["wq", "wg"]).joined(Join::Heads)];

/// The delta rules of a Qwen, in the layers that do not have attention.
pub(in crate::models::families) fn delta(fields: &Fields, layers: u32) -> Result<Option<Scanned>, ConfigError> {
    let interval: u32 = fields.get("full_attention_interval")?;
    positive("full_attention_interval", u64::from(interval))?;
    let scanned =
        LayerTypes::USUAL.scanned(fields, layers, "layer_types", |layer| !(layer + 1).is_multiple_of(interval))?;
    let heads = [fields.get("linear_num_key_heads")?, fields.get("linear_num_value_heads")?];
    let sizes = [fields.get("linear_key_head_dim")?, fields.get("linear_value_head_dim")?];
    let mixer = Mixer::Delta(DeltaNet::of_heads(heads, sizes, fields.get("linear_conv_kernel_dim")?)?);
    Ok(scanned.map(|layers| Scanned::of(mixer, layers)))
}

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { part: Some("partial_rotary_factor"), ..Rope::USUAL };
    let base = Base { rope, ..Base::USUAL }.read(fields)?;
    let experts = match qwen2_moe::experts(fields, base.layers)? {
        Some(experts) => {
            Some(Experts { shared: fields.get("shared_expert_intermediate_size")?, shared_gate: true, ..experts })
        }
        None => None,
    };
    let scanned = delta(fields, base.layers)?;
    Ok(LlamaConfig { head_gate: HeadGate::Sigmoid, qk_norm: QkNorm::Heads, scanned, experts, ..base }.into())
}
