//! Qwen3.5, its text models: gated delta rules in place of attention in most layers, and gates of attention's heads.

use super::prelude::*;
use super::qwen2;
use super::qwen3_next::{self, QWEN_GAINS, QWEN_GATED, QWEN_OUTER};

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "qwen3_5_text",
    class: "Qwen3_5ForCausalLM",
    keys: Keys {
        class: "Qwen3_5TextConfig",
        lists: &[KEYS, ATTENDING, qwen3_next::DELTA, FIXED_NET, qwen2::QWEN, ROTARY, EVERY],
    },
    wholes: &[Composite { tied: Tied::Whole, ..Composite::of("qwen3_5") }],
    weights: Weights {
        outer: QWEN_OUTER,
        inner: &[QWEN_GAINS, DELTA_WEIGHTS, QWEN_GATED, QKV, ATTENTION, NET],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "12288", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
];

/// The keys of attention.
pub(in crate::models::families) const ATTENDING: &[Key] = &[
    Key::read(&["vocab_size"], "248320", VOCABULARY),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["head_dim"], "256", HEAD_SIZE),
    Key::read(&["rms_norm_eps"], "1e-6", NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["partial_rotary_factor"], "0.25", TURNED),
    Key::only(&["attention_bias"], "false", NO_BIAS),
];

/// The delta rule, with a matrix for queries, keys and values.
pub(in crate::models::families) const DELTA_WEIGHTS: &[HubTensor] = &[
    HubTensor::linear("linear_attn.in_proj_qkv.weight", &["wmq", "wmk", "wmv"]),
    HubTensor::linear("linear_attn.in_proj_z.weight", &["wgate"]),
    HubTensor::linear("linear_attn.in_proj_b.weight", &["wbeta"]),
    HubTensor::linear("linear_attn.in_proj_a.weight", &["wdecay"]),
    HubTensor::vector("linear_attn.conv1d.weight", &["conv_mq", "conv_mk", "conv_mv"]).shaped(FileShape::Taps),
    HubTensor::vector("linear_attn.A_log", &["a_log"]),
    HubTensor::vector("linear_attn.dt_bias", &["dt_bias"]),
    HubTensor::vector("linear_attn.norm.weight", &["scan_norm"]),
    HubTensor::linear("linear_attn.out_proj.weight", &["wmo"]).of_inputs(3),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(base(fields, "intermediate_size")?.into())
}

/// The fields of a model without experts.
pub(in crate::models::families) fn base(
    fields: &Fields,
    feed_forward: &'static str,
) -> Result<LlamaConfig, ConfigError> {
    let rope = Rope { part: Some("partial_rotary_factor"), ..Rope::USUAL };
    let base = Base { feed_forward, rope, ..Base::USUAL }.read(fields)?;
    let scanned = qwen3_next::delta(fields, base.layers)?;
    Ok(LlamaConfig { head_gate: HeadGate::Sigmoid, qk_norm: QkNorm::Heads, scanned, ..base })
}
