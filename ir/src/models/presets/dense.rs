//! Mistral, OLMo 2 and Phi without experts.

use super::Preset;
use super::llama::LLAMA3_8B;
use crate::models::{LlamaConfig, ModelConfig, Norms, QkNorm, Window};

/// `config.json` of mistralai/Mistral-7B-v0.1.
const MISTRAL_7B: LlamaConfig =
    LlamaConfig { vocabulary: 32_000, rope_theta: 10_000.0, window: Some(Window::of_all(4096)), ..LLAMA3_8B };

/// `config.json` of mistralai/Mistral-7B-v0.3, and of the models after it: without a window.
const MISTRAL_7B_3: LlamaConfig =
    LlamaConfig { vocabulary: 32_768, rope_theta: 1_000_000.0, window: None, ..MISTRAL_7B };

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
    rope_theta: 10_000.0,
    window: Some(Window::of_all(2047)),
    pad: Some(32_000),
    ..LLAMA3_8B
};

/// `config.json` of microsoft/Phi-3-medium-4k-instruct.
const PHI3_MEDIUM: LlamaConfig =
    LlamaConfig { hidden: 5120, feed_forward: 17_920, layers: 40, heads: 40, kv_heads: 10, head: 128, ..PHI3_MINI };

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
            rope_theta: 100_000_000.0,
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
    named(
        "phi4",
        "Phi-4, 15B parameters",
        16_384,
        LlamaConfig { vocabulary: 100_352, rope_theta: 250_000.0, window: None, pad: Some(100_349), ..PHI3_MEDIUM },
    ),
];
