//! Apertus: xIELU without a gate, and norms of queries and keys.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "apertus",
    class: "ApertusForCausalLM",
    keys: Keys { class: "ApertusConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[LAYER, QKV, ATTENTION, NET], constants: CONSTANTS, ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "131072", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "14336", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"xielu\"", "xielu, silu, gelu, gelu_pytorch_tanh, quick_gelu, relu or relu2"),
    Key::read(&["max_position_embeddings"], "65536", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["pad_token_id"], "3", PAD),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "12000000.0", THETA),
    WHOLE_HEADS,
    Key::only(&["hidden_dropout"], "0.0", UNREAD),
    Key::only(&["mlp_bias"], "false", "the feed-forward net has no bias"),
    Key::only(&["post_norm"], "false", "norms are those of what branches read"),
    Key::only(&["qk_norm"], "true", ALWAYS_NORMED),
];

/// The numbers of xIELU that are not learned.
const CONSTANTS: &[(&str, f32)] = &[("mlp.act_fn.beta", 0.5), ("mlp.act_fn.eps", -1e-6)];

/// The norms, and the learned numbers of xIELU.
const LAYER: &[HubTensor] = &[
    HubTensor::vector("attention_layernorm.weight", &["norm1"]),
    HubTensor::vector("feedforward_layernorm.weight", &["norm2"]),
    HubTensor::vector("mlp.act_fn.alpha_p", &["alpha_p"]),
    HubTensor::vector("mlp.act_fn.alpha_n", &["alpha_n"]),
];

/// The rotary positions of a file that states none.
const SCALED: &str = r#"{"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192}"#;

pub(super) fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { default: Some(SCALED), ..Rope::USUAL };
    let base = biased(fields, Base { rope, ..Base::USUAL }.read(fields)?)?;
    windows::one_type(fields)?;
    let is_xielu = fields.get::<String>("hidden_act")? == "xielu";
    Ok(LlamaConfig {
        gated: false,
        activation: if is_xielu { Activation::Xielu } else { activation(fields, "hidden_act")? },
        qk_norm: QkNorm::Heads,
        ..base
    }
    .into())
}

pub(super) const PRESETS: &[Preset] = &[Preset::llama(
    "apertus-8b",
    "Apertus, 8.1B parameters",
    65_536,
    // config.json of swiss-ai/Apertus-8B-2509.
    LlamaConfig {
        vocabulary: 131_072,
        feed_forward: 21_504,
        gated: false,
        activation: Activation::Xielu,
        rotation: Rotation {
            scaling: Some(Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 8192 }),
            theta: 12_000_000.0,
            ..PLAIN
        },
        pad: Some(3),
        qk_norm: QkNorm::Heads,
        ..LLAMA3_8B
    },
)];
