//! Llama and its likes without experts.

use super::Preset;
use crate::models::{Activation, LayerSet, LlamaConfig, ModelConfig, Norms, QkNorm, Rotation};
use crate::ops::Scaling;

/// Whole heads turn, by unscaled frequencies of the base of Su et al. 2021, section 3.3.
pub(super) const PLAIN: Rotation = Rotation { theta: 10_000.0, scaling: None, gain: 1.0, turned: None };

/// The common fields of the Llama 3 models: `config.json` of meta-llama/Meta-Llama-3-8B.
pub(super) const LLAMA3_8B: LlamaConfig = LlamaConfig {
    vocabulary: 128_256,
    hidden: 4096,
    feed_forward: 14_336,
    gated: true,
    activation: Activation::Silu,
    layers: 32,
    heads: 32,
    kv_heads: 8,
    head: 128,
    norm_eps: 1e-5,
    layer_norm: false,
    norms: Norms::Before,
    parallel: false,
    rotation: Rotation { theta: 500_000.0, ..PLAIN },
    local_rotation: None,
    nope: LayerSet::None,
    temperature: None,
    score_size: None,
    softcap: None,
    logit_softcap: None,
    window: None,
    pad: None,
    tied: false,
    scaled_embeddings: false,
    qkv_bias: false,
    out_bias: false,
    net_bias: false,
    sinks: false,
    qk_norm: QkNorm::None,
    deviation: 0.02,
    latent: None,
    experts: None,
    mtp: None,
};

/// The same sizes as `config.json` of meta-llama/Meta-Llama-3-70B has them.
const LLAMA3_70B: LlamaConfig = LlamaConfig { hidden: 8192, feed_forward: 28_672, layers: 80, heads: 64, ..LLAMA3_8B };

/// The rotation of the Llama 3.1 models: `config.json` of meta-llama/Llama-3.1-8B.
const LONG: Rotation = Rotation {
    theta: 500_000.0,
    scaling: Some(Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 8192 }),
    ..PLAIN
};

/// `config.json` of meta-llama/Llama-2-7b-hf.
const LLAMA2_7B: LlamaConfig =
    LlamaConfig { vocabulary: 32_000, feed_forward: 11_008, kv_heads: 32, rotation: PLAIN, ..LLAMA3_8B };

/// `config.json` of meta-llama/Llama-3.2-1B.
const LLAMA32_1B: LlamaConfig = LlamaConfig {
    hidden: 2048,
    feed_forward: 8192,
    layers: 16,
    head: 64,
    rotation: Rotation {
        theta: 500_000.0,
        scaling: Some(Scaling::Llama3 { factor: 32.0, low: 1.0, high: 4.0, context: 8192 }),
        ..PLAIN
    },
    tied: true,
    ..LLAMA3_8B
};

/// `scripts/scaling_benchmarks.py` of huggingface/nanotron: one key head per query head, tied where the feed-forward net
/// is below 10,000.
const PLAYBOOK_8B: LlamaConfig = LlamaConfig { vocabulary: 131_072, kv_heads: 32, rotation: PLAIN, ..LLAMA3_8B };

/// Parmar et al. 2024 (Nemotron-4 15B), table 1. Its norms are layer norms and only half of a head turns there; neither
/// changes a matrix.
const NEMOTRON_15B: LlamaConfig = LlamaConfig {
    vocabulary: 256_000,
    hidden: 6144,
    feed_forward: 24_576,
    gated: false,
    activation: Activation::ReluSquared,
    heads: 48,
    rotation: PLAIN,
    ..LLAMA3_8B
};

const fn named(name: &'static str, about: &'static str, context: u64, config: LlamaConfig) -> Preset {
    Preset { name, about, context, config: ModelConfig::Llama(config) }
}

pub(super) const PRESETS: &[Preset] = &[
    named("llama2-7b", "Llama 2, 6.7B parameters", 4096, LLAMA2_7B),
    // config.json of meta-llama/Llama-2-13b-hf and Llama-2-70b-hf.
    named(
        "llama2-13b",
        "Llama 2, 13B parameters",
        4096,
        LlamaConfig { hidden: 5120, feed_forward: 13_824, layers: 40, heads: 40, kv_heads: 40, ..LLAMA2_7B },
    ),
    named(
        "llama2-70b",
        "Llama 2, 69B parameters",
        4096,
        LlamaConfig { hidden: 8192, feed_forward: 28_672, layers: 80, heads: 64, kv_heads: 8, ..LLAMA2_7B },
    ),
    named("llama3-8b", "Llama 3, 8.0B parameters", 8192, LLAMA3_8B),
    named("llama3-70b", "Llama 3, 71B parameters", 8192, LLAMA3_70B),
    named("llama3.1-8b", "Llama 3.1, 8.0B parameters", 131_072, LlamaConfig { rotation: LONG, ..LLAMA3_8B }),
    // Dubey et al. 2024, table 3, as config.json of meta-llama/Llama-3.1-70B and 405B.
    named("llama3.1-70b", "Llama 3.1, 71B parameters", 131_072, LlamaConfig { rotation: LONG, ..LLAMA3_70B }),
    named(
        "llama3.1-405b",
        "Llama 3.1, 406B parameters",
        131_072,
        LlamaConfig { hidden: 16_384, feed_forward: 53_248, layers: 126, heads: 128, rotation: LONG, ..LLAMA3_8B },
    ),
    named("llama3.2-1b", "Llama 3.2, 1.2B parameters", 131_072, LLAMA32_1B),
    // config.json of meta-llama/Llama-3.2-3B.
    named(
        "llama3.2-3b",
        "Llama 3.2, 3.2B parameters",
        131_072,
        LlamaConfig { hidden: 3072, layers: 28, heads: 24, head: 128, ..LLAMA32_1B },
    ),
    named(
        "playbook-1b",
        "a Llama of the Ultra-Scale Playbook, 1.3B parameters",
        4096,
        LlamaConfig { hidden: 2048, feed_forward: 8192, layers: 16, head: 64, tied: true, ..PLAYBOOK_8B },
    ),
    named(
        "playbook-3b",
        "a Llama of the Ultra-Scale Playbook, 3.6B parameters",
        4096,
        LlamaConfig { hidden: 3072, feed_forward: 8192, layers: 28, head: 96, tied: true, ..PLAYBOOK_8B },
    ),
    named("playbook-8b", "a Llama of the Ultra-Scale Playbook, 8.8B parameters", 4096, PLAYBOOK_8B),
    named(
        "playbook-80b",
        "a Llama of the Ultra-Scale Playbook, 80B parameters",
        4096,
        LlamaConfig { hidden: 8192, feed_forward: 28_672, layers: 80, heads: 64, kv_heads: 64, ..PLAYBOOK_8B },
    ),
    named("nemotron4-15b", "Nemotron-4, 16B parameters: squared ReLU", 4096, NEMOTRON_15B),
    // Nemotron-3 8B and 22B as NeMo trains them; config.json of nvidia/Nemotron-4-340B-Base for the last.
    named(
        "nemotron-8b",
        "Nemotron, 8.6B parameters: squared ReLU",
        4096,
        LlamaConfig { hidden: 4096, feed_forward: 16_384, heads: 32, kv_heads: 32, ..NEMOTRON_15B },
    ),
    named(
        "nemotron-22b",
        "Nemotron, 21B parameters: squared ReLU",
        4096,
        LlamaConfig { layers: 40, kv_heads: 48, ..NEMOTRON_15B },
    ),
    named(
        "nemotron4-340b",
        "Nemotron-4, 341B parameters: squared ReLU",
        4096,
        LlamaConfig { hidden: 18_432, feed_forward: 73_728, layers: 96, heads: 96, head: 192, ..NEMOTRON_15B },
    ),
];
