//! Phi-3 and Phi-4: joined matrices, and LongRoPE.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;
use std::borrow::Cow;

pub(super) const FAMILY: Family = Family {
    model_type: "phi3",
    class: "Phi3ForCausalLM",
    keys: Keys { class: "Phi3Config", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[JOINED, NORMS, ATTENTION, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32064", VOCABULARY),
    Key::read(&["hidden_size"], "3072", HIDDEN),
    Key::read(&["intermediate_size"], "8192", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["max_position_embeddings"], "4096", CONTEXT),
    Key::read(&["original_max_position_embeddings"], "4096", "context before scaling"),
    Key::read(&["rms_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["sliding_window"], "null", WINDOW),
    Key::only(&["resid_pdrop", "embd_pdrop"], "0.0", "nothing is dropped"),
    Key::read(&["pad_token_id"], "32000", PAD),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["partial_rotary_factor"], "1.0", TURNED),
    Key::only(&["attention_bias"], "false", NO_BIAS),
];

/// Matrices that are one in files.
const JOINED: &[HubTensor] = &[
    HubTensor::linear("self_attn.qkv_proj.weight", &["wq", "wk", "wv"]),
    HubTensor::linear("mlp.gate_up_proj.weight", &["gate", "up"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { part: Some("partial_rotary_factor"), kinds: Kinds::LongRope, ..Rope::USUAL };
    let base = Base { rope, ..Base::USUAL }.read(fields)?;
    let activation = activation(fields, "hidden_act")?;
    Ok(LlamaConfig { activation, window: windows::of_all(fields)?, ..base }.into())
}

/// `config.json` of microsoft/Phi-3-mini-4k-instruct.
const PHI3_MINI: LlamaConfig = LlamaConfig {
    vocabulary: 32_064,
    hidden: 3072,
    feed_forward: 8192,
    kv_heads: 32,
    head: 96,
    rotation: PLAIN,
    window: Some(Window::of_all(2047)),
    pad: Some(32_000),
    ..LLAMA3_8B
};

/// `config.json` of microsoft/Phi-3-medium-4k-instruct.
const PHI3_MEDIUM: LlamaConfig =
    LlamaConfig { hidden: 5120, feed_forward: 17_920, layers: 40, heads: 40, kv_heads: 10, head: 128, ..PHI3_MINI };

/// The divisors of frequencies in long sequences, of microsoft/Phi-4-mini-instruct.
const PHI4_LONG: [f64; 48] = [
    1.0,
    1.118320672,
    1.250641126,
    1.398617824,
    1.564103225,
    1.74916897,
    1.956131817,
    2.187582649,
    2.446418898,
    2.735880826,
    3.059592084,
    3.421605075,
    3.826451687,
    4.279200023,
    4.785517845,
    5.351743533,
    5.984965424,
    6.693110555,
    7.485043894,
    8.370679318,
    9.36110372,
    10.4687158,
    11.70738129,
    13.09260651,
    14.64173252,
    16.37415215,
    18.31155283,
    20.47818807,
    22.90118105,
    25.61086418,
    28.64115884,
    32.03,
    32.1,
    32.13,
    32.23,
    32.6,
    32.61,
    32.64,
    32.66,
    32.7,
    32.71,
    32.93,
    32.97,
    33.28,
    33.49,
    33.5,
    44.16,
    47.77,
];

/// `config.json` of microsoft/Phi-4-mini-instruct. Three quarters of a head turn.
const PHI4_MINI: LlamaConfig = LlamaConfig {
    vocabulary: 200_064,
    heads: 24,
    kv_heads: 8,
    head: 128,
    rotation: Rotation {
        theta: 10_000.0,
        scaling: Some(Scaling::Lengths {
            short: Cow::Borrowed(&[1.0; 48]),
            long: Cow::Borrowed(&PHI4_LONG),
            context: 4096,
        }),
        // The root of 1 + ln 32 / ln 4096.
        gain: 1.190_238_071_423_808_3,
        turned: Some(96),
        backwards: false,
        sections: None,
    },
    window: Some(Window::of_all(262_144)),
    pad: Some(199_999),
    tied: true,
    ..PHI3_MINI
};

pub(super) const PRESETS: &[Preset] = &[
    Preset::llama("phi3-mini", "Phi-3 mini, 3.8B parameters: windows of 2047", 4096, PHI3_MINI),
    Preset::llama("phi3-medium", "Phi-3 medium, 14B parameters: windows of 2047", 4096, PHI3_MEDIUM),
    Preset::llama("phi4-mini", "Phi-4 mini, 3.8B parameters", 131_072, PHI4_MINI),
];

/// Presets that the list has behind those of SmolLM3.
pub(super) const LATER: &[Preset] = &[Preset::llama(
    "phi4",
    "Phi-4, 15B parameters",
    16_384,
    LlamaConfig {
        vocabulary: 100_352,
        rotation: Rotation { theta: 250_000.0, ..PLAIN },
        window: None,
        pad: Some(100_349),
        ..PHI3_MEDIUM
    },
)];
