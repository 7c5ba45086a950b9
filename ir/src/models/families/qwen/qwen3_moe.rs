//! Qwen3 with experts.

use super::super::llama::PLAIN;
use super::prelude::*;
use super::qwen3::QWEN3_8B;
use super::{qwen2, qwen2_moe};

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "qwen3_moe",
    class: "Qwen3MoeForCausalLM",
    keys: Keys {
        class: "Qwen3MoeConfig",
        lists: &[KEYS, ONE_TYPE, FIXED_NET, ROUTED, ROUTER_LOSS, qwen2::QWEN, qwen2_moe::QWEN_MOE, ROTARY, EVERY],
    },
    wholes: &[
        Composite {
            text_type: Some("qwen3_vl_moe_text"),
            defaults: VL,
            tied: Tied::Whole,
            inner: VL_EXPERTS,
            ..Composite::of("qwen3_vl_moe")
        },
        Composite { tied: Tied::Whole, ..Composite::of("internvl") },
    ],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, NET, ROUTED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["intermediate_size"], "6144", FEED_FORWARD),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rms_norm_eps"], "1e-6", LATENT_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["sliding_window"], "4096", WINDOW),
    Key::read(&["num_experts"], "128", EXPERTS),
    Key::alias(&["num_local_experts"], "num_experts"),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::read(&["moe_intermediate_size"], "768", EXPERT_SIZE),
    Key::only(&["shared_expert_intermediate_size"], "0", "the class has no expert that all tokens take"),
    Key::only(&["use_qk_norm"], "true", ALWAYS_NORMED),
    WHOLE_HEADS,
];

/// Defaults of the text model of Qwen3-VL with experts.
const VL: &str = r#"{"intermediate_size": 5632, "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 60,
    "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "norm_topk_prob": true, "max_position_embeddings": 128000,
    "rope_theta": 5e5}"#;

/// Experts in files of Qwen3-VL: the matrices of all in one tensor. Those of the hub have inputs in rows, those that the class writes outputs.
const VL_EXPERTS: &[HubTensor] = &[
    GATE_UP.when(When::Sizes),
    DOWN.when(When::Sizes),
    HubTensor { order: MatrixOrder::InputsFirst, ..GATE_UP }.when(When::Sizes),
    HubTensor { order: MatrixOrder::InputsFirst, ..DOWN }.when(When::Sizes),
    GATE_UP,
    DOWN,
];

const GATE_UP: HubTensor = HubTensor::linear("mlp.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts();
const DOWN: HubTensor = HubTensor::linear("mlp.experts.down_proj", &["expert_down"]).of_experts();

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    windows::one_type(fields)?;
    let is_used = fields.get("use_sliding_window")?;
    Ok(LlamaConfig {
        window: if is_used { windows::of_all(fields)? } else { None },
        qk_norm: QkNorm::Heads,
        experts: qwen2_moe::experts(fields, base.layers)?,
        ..base
    }
    .into())
}

pub(in crate::models::families) const PRESETS: &[Preset] = &[
    Preset::llama(
        "qwen3-30b-a3b",
        "Qwen3, 31B parameters, 8 of 128 experts",
        40_960,
        // config.json of Qwen/Qwen3-30B-A3B.
        LlamaConfig {
            hidden: 2048,
            feed_forward: 6144,
            layers: 48,
            kv_heads: 4,
            experts: Some(Experts::softmax(128, 8, 768)),
            ..QWEN3_8B
        },
    ),
    Preset::llama(
        "qwen3-235b-a22b",
        "Qwen3, 235B parameters, 8 of 128 experts",
        40_960,
        // config.json of Qwen/Qwen3-235B-A22B.
        LlamaConfig { layers: 94, heads: 64, kv_heads: 4, experts: Some(Experts::softmax(128, 8, 1536)), ..QWEN3_8B },
    ),
    Preset::llama(
        "qwen3-coder-480b-a35b",
        "Qwen3 Coder, 480B parameters, 8 of 160 experts",
        262_144,
        // config.json of Qwen/Qwen3-Coder-480B-A35B-Instruct.
        LlamaConfig {
            hidden: 6144,
            feed_forward: 8192,
            layers: 62,
            heads: 96,
            rotation: Rotation { theta: 10_000_000.0, ..PLAIN },
            experts: Some(Experts::softmax(160, 8, 2560)),
            ..QWEN3_8B
        },
    ),
];
