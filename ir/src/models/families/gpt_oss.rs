//! gpt-oss: sinks, and experts with biases and bounded gates.

use super::llama::LLAMA3_8B;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "gpt_oss",
    class: "GptOssForCausalLM",
    keys: Keys { class: "GptOssConfig", lists: &[KEYS, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, OWN], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "201088", VOCABULARY),
    Key::read(&["hidden_size"], "2880", HIDDEN),
    Key::read(&["intermediate_size"], "2880", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "36", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "64", HEAD_SIZE),
    Key::only(&["hidden_act"], "\"silu\"", "experts have a gate of their own"),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["rope_theta"], "150000.0", THETA),
    Key::read(&["sliding_window"], "128", WINDOW),
    Key::read(&["num_local_experts"], "128", EXPERTS),
    Key::alias(&["num_experts"], "num_local_experts"),
    Key::read(&["num_experts_per_tok"], "4", CHOSEN),
    Key::read(&["swiglu_alpha"], "1.702", "factor within the sigmoid of experts' gates"),
    Key::read(&["swiglu_limit"], "7.0", "bound of the operands of experts' gates"),
    Key::nothing(&["experts_per_token", "initial_context_length"], UNREAD),
    Key::read(&["attention_bias"], "true", BIAS),
    WHOLE_HEADS,
    LAYER_TYPES,
];

/// Sinks and experts: gates and factors alternate, and matrices have inputs in rows.
const OWN: &[HubTensor] = &[
    HubTensor::vector("self_attn.sinks", &["sink"]),
    HubTensor::linear("mlp.router.weight", &["router"]),
    HubTensor::vector("mlp.router.bias", &["logit_bias"]),
    HubTensor::table("mlp.experts.gate_up_proj", &["expert_gate", "expert_up"]).of_experts().joined(Join::Alternating),
    HubTensor::vector("mlp.experts.gate_up_proj_bias", &["expert_gate_bias", "expert_up_bias"])
        .of_experts()
        .joined(Join::Alternating),
    HubTensor::table("mlp.experts.down_proj", &["expert_down"]).of_experts(),
    HubTensor::vector("mlp.experts.down_proj_bias", &["expert_down_bias"]).of_experts(),
];

/// The rotary positions of a file that states none.
const YARN: &str = r#"{"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
    "original_max_position_embeddings": 4096}"#;

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { default: Some(YARN), ..Rope::USUAL };
    let base = biased(fields, Base { rope, ..Base::USUAL }.read(fields)?)?;
    let layers = Limited::sliding(fields, base.layers)?;
    let experts = Experts {
        biases: true,
        clamp: Some(Clamp { alpha: fields.get("swiglu_alpha")?, limit: fields.get("swiglu_limit")? }),
        ..softmax(fields, "num_local_experts", "intermediate_size")?
    };
    Ok(LlamaConfig {
        window: layers.read(fields, |layer| (layer + 1).is_multiple_of(2))?,
        sinks: Sinks::All,
        experts: Some(experts),
        ..base
    }
    .into())
}

/// `config.json` of openai/gpt-oss-20b.
const OSS_20B: LlamaConfig = LlamaConfig {
    vocabulary: 201_088,
    hidden: 2880,
    feed_forward: 2880,
    layers: 24,
    heads: 64,
    head: 64,
    rotation: Rotation {
        theta: 150_000.0,
        scaling: Some(Scaling::Yarn { factor: 32.0, low: 1.0, high: 32.0, context: 4096, fractional: true }),
        // 0.1 ln 32 + 1.
        gain: 1.346_573_590_279_972_7,
        turned: None,
        backwards: false,
        sections: None,
    },
    window: Some(Window { full: LayerSet::Every(2), ..Window::of_all(128) }),
    pad: Some(199_999),
    qkv_bias: true,
    out_bias: true,
    sinks: Sinks::All,
    experts: Some(oss(32)),
    ..LLAMA3_8B
};

const fn oss(experts: u64) -> Experts {
    let clamp = Some(Clamp { alpha: 1.702, limit: 7.0 });
    Experts { biases: true, clamp, ..Experts::softmax(experts, 4, 2880) }
}

pub(super) const PRESETS: &[Preset] = &[
    Preset::llama(
        "gpt-oss-20b",
        "gpt-oss, 21B parameters, 4 of 32 experts, windows of 128 in every second layer",
        131_072,
        OSS_20B,
    ),
    Preset::llama(
        "gpt-oss-120b",
        "gpt-oss, 117B parameters, 4 of 128 experts, windows of 128 in every second layer",
        131_072,
        // config.json of openai/gpt-oss-120b.
        LlamaConfig { layers: 36, experts: Some(oss(128)), ..OSS_20B },
    ),
];
