//! Qwen2 with experts, and a shared one with a gate.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;
use super::qwen2::{self, QWEN25_7B};

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "qwen2_moe",
    class: "Qwen2MoeForCausalLM",
    keys: Keys {
        class: "Qwen2MoeConfig",
        lists: &[KEYS, FIXED_NET, ROUTED, ROUTER_LOSS, qwen2::QWEN, QWEN_MOE, ROTARY, EVERY],
    },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, NET, ROUTED_WEIGHTS, SHARED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["intermediate_size"], "5632", FEED_FORWARD),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["num_key_value_heads"], "16", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rms_norm_eps"], "1e-6", LATENT_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["qkv_bias"], "true", QKV_BIAS),
    Key::read(&["sliding_window"], "4096", WINDOW),
    Key::read(&["max_window_layers"], "28", "which layers have the window"),
    Key::read(&["num_experts"], "60", EXPERTS),
    Key::read(&["num_experts_per_tok"], "4", CHOSEN),
    Key::read(&["moe_intermediate_size"], "1408", EXPERT_SIZE),
    Key::read(&["shared_expert_intermediate_size"], "5632", "the same of the expert that all tokens take"),
    WHOLE_HEADS,
    LAYER_TYPES,
];

/// The keys of Qwens with experts.
pub(in crate::models::families) const QWEN_MOE: &[Key] = &[
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["norm_topk_prob"], "false", RENORMALISE),
    Key::read(&["decoder_sparse_step"], "1", "one layer in this number has experts"),
    Key::read(&["mlp_only_layers"], "null", "layers without experts"),
];

/// The expert that all tokens take, and its gate.
pub(in crate::models::families) const SHARED_WEIGHTS: &[HubTensor] = &[
    HubTensor::linear("mlp.shared_expert.gate_proj.weight", &["shared_gate"]),
    HubTensor::linear("mlp.shared_expert.up_proj.weight", &["shared_up"]),
    HubTensor::linear("mlp.shared_expert.down_proj.weight", &["shared_down"]),
    HubTensor::linear("mlp.shared_expert_gate.weight", &["shared_share"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    let qkv_bias = fields.get("qkv_bias")?;
    let most = qwen2::full_at_first(fields)?;
    let window = qwen2::limited(fields, base.layers)?
        .read(fields, |layer| !layer.is_multiple_of(2) || u64::from(layer) >= most)?;
    let experts = match experts(fields, base.layers)? {
        Some(experts) => {
            Some(Experts { shared: fields.get("shared_expert_intermediate_size")?, shared_gate: true, ..experts })
        }
        None => None,
    };
    Ok(LlamaConfig { qkv_bias, window, experts, ..base }.into())
}

/// The experts of a Qwen. Layers that `mlp_only_layers` names have none, and all but each one of `decoder_sparse_step`.
pub(in crate::models::families) fn experts(fields: &Fields, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let (step, number): (u64, u64) = (fields.get("decoder_sparse_step")?, fields.get("num_experts")?);
    positive("decoder_sparse_step", step)?;
    let only: Vec<u32> = fields.optional("mlp_only_layers")?.unwrap_or_default();
    let dense = dense(layers, "mlp_only_layers", |layer| {
        number == 0 || only.contains(&layer) || !(u64::from(layer) + 1).is_multiple_of(step)
    })?;
    let Some(dense) = dense else { return Ok(None) };
    let renormalise = fields.get("norm_topk_prob")?;
    Ok(Some(Experts { dense, renormalise, ..softmax(fields, "num_experts", "moe_intermediate_size")? }))
}

/// The experts of Qwen1.5 and Qwen2: a shared one of another size, with a gate.
const fn shared(experts: u64, chosen: u64, size: u64, shared: u64) -> Experts {
    Experts { shared, shared_gate: true, renormalise: false, ..Experts::softmax(experts, chosen, size) }
}

pub(in crate::models::families) const PRESETS: &[Preset] = &[
    Preset::llama(
        "qwen1.5-moe-a2.7b",
        "Qwen1.5, 14B parameters, 4 of 60 experts",
        8192,
        // config.json of Qwen/Qwen1.5-MoE-A2.7B.
        LlamaConfig {
            vocabulary: 151_936,
            hidden: 2048,
            feed_forward: 5632,
            layers: 24,
            heads: 16,
            kv_heads: 16,
            norm_eps: 1e-6,
            rotation: Rotation { theta: 1_000_000.0, ..PLAIN },
            qkv_bias: true,
            experts: Some(shared(60, 4, 1408, 5632)),
            ..LLAMA3_8B
        },
    ),
    Preset::llama(
        "qwen2-57b-a14b",
        "Qwen2, 57B parameters, 8 of 64 experts",
        32_768,
        // config.json of Qwen/Qwen2-57B-A14B.
        LlamaConfig { vocabulary: 151_936, experts: Some(shared(64, 8, 2560, 20_480)), ..QWEN25_7B },
    ),
];
