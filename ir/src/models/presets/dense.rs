//! Mistral, OLMo 2, Phi and SmolLM without experts.

use super::Preset;
use super::llama::{LLAMA3_8B, PLAIN};
use crate::models::{LayerSet, LlamaConfig, ModelConfig, Norms, QkNorm, Rotation, Window};
use crate::ops::Scaling;
use std::borrow::Cow;

/// `config.json` of mistralai/Mistral-7B-v0.1.
const MISTRAL_7B: LlamaConfig =
    LlamaConfig { vocabulary: 32_000, rotation: PLAIN, window: Some(Window::of_all(4096)), ..LLAMA3_8B };

/// `config.json` of mistralai/Mistral-7B-v0.3, and of the models after it: without a window.
const MISTRAL_7B_3: LlamaConfig =
    LlamaConfig { vocabulary: 32_768, rotation: Rotation { theta: 1_000_000.0, ..PLAIN }, window: None, ..MISTRAL_7B };

/// `config.json` of allenai/OLMo-2-1124-7B.
const OLMO2_7B: LlamaConfig = LlamaConfig {
    vocabulary: 100_352,
    feed_forward: 11_008,
    kv_heads: 32,
    norm_eps: 1e-6,
    norms: Norms::After,
    pad: Some(100_277),
    qk_norm: QkNorm::Whole,
    ..LLAMA3_8B
};

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
    },
    window: Some(Window::of_all(262_144)),
    pad: Some(199_999),
    tied: true,
    ..PHI3_MINI
};

/// `config.json` of HuggingFaceTB/SmolLM3-3B. Each fourth layer has no positions.
const SMOLLM3_3B: LlamaConfig = LlamaConfig {
    hidden: 2048,
    feed_forward: 11_008,
    layers: 36,
    heads: 16,
    kv_heads: 4,
    norm_eps: 1e-6,
    rotation: Rotation { theta: 5_000_000.0, ..PLAIN },
    nope: LayerSet::Every(4),
    pad: Some(128_004),
    tied: true,
    ..LLAMA3_8B
};

const fn named(name: &'static str, about: &'static str, context: u64, config: LlamaConfig) -> Preset {
    Preset { name, about, context, config: ModelConfig::Llama(config) }
}

/// A preset without a constant of its own is the `config.json` of the model of its name.
pub(super) const PRESETS: &[Preset] = &[
    named("mistral-7b", "Mistral 7B v0.1, 7.2B parameters: windows of 4096", 32_768, MISTRAL_7B),
    named("mistral-7b-v0.3", "Mistral 7B v0.3, 7.2B parameters", 32_768, MISTRAL_7B_3),
    named(
        "mistral-nemo-12b",
        "Mistral NeMo, 12B parameters",
        131_072,
        LlamaConfig { vocabulary: 131_072, hidden: 5120, layers: 40, ..MISTRAL_7B_3 },
    ),
    named(
        "mistral-small-24b",
        "Mistral Small 3, 24B parameters",
        32_768,
        LlamaConfig {
            vocabulary: 131_072,
            hidden: 5120,
            feed_forward: 32_768,
            layers: 40,
            rotation: Rotation { theta: 100_000_000.0, ..PLAIN },
            ..MISTRAL_7B_3
        },
    ),
    named(
        "mistral-large-123b",
        "Mistral Large 2, 123B parameters",
        131_072,
        LlamaConfig { hidden: 12_288, feed_forward: 28_672, layers: 88, heads: 96, ..MISTRAL_7B_3 },
    ),
    named(
        "olmo2-1b",
        "OLMo 2, 1.5B parameters",
        4096,
        LlamaConfig { hidden: 2048, feed_forward: 8192, layers: 16, heads: 16, kv_heads: 16, ..OLMO2_7B },
    ),
    named("olmo2-7b", "OLMo 2, 7.3B parameters", 4096, OLMO2_7B),
    named(
        "olmo2-13b",
        "OLMo 2, 14B parameters",
        4096,
        LlamaConfig { hidden: 5120, feed_forward: 13_824, layers: 40, heads: 40, kv_heads: 40, ..OLMO2_7B },
    ),
    named(
        "olmo2-32b",
        "OLMo 2, 32B parameters",
        4096,
        LlamaConfig { hidden: 5120, feed_forward: 27_648, layers: 64, heads: 40, kv_heads: 8, ..OLMO2_7B },
    ),
    named("phi3-mini", "Phi-3 mini, 3.8B parameters: windows of 2047", 4096, PHI3_MINI),
    named("phi3-medium", "Phi-3 medium, 14B parameters: windows of 2047", 4096, PHI3_MEDIUM),
    named("phi4-mini", "Phi-4 mini, 3.8B parameters", 131_072, PHI4_MINI),
    named("smollm3-3b", "SmolLM3, 3.1B parameters: no positions in every fourth layer", 65_536, SMOLLM3_3B),
    named(
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
    ),
];
