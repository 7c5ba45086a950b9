//! Qwen without experts.

use super::Preset;
use super::llama::{LLAMA3_8B, PLAIN};
use crate::models::{LlamaConfig, ModelConfig, QkNorm, Rotation};

/// `config.json` of Qwen/Qwen2.5-7B.
pub(super) const QWEN25_7B: LlamaConfig = LlamaConfig {
    vocabulary: 152_064,
    hidden: 3584,
    feed_forward: 18_944,
    layers: 28,
    heads: 28,
    kv_heads: 4,
    norm_eps: 1e-6,
    rotation: Rotation { theta: 1_000_000.0, ..PLAIN },
    qkv_bias: true,
    ..LLAMA3_8B
};

/// `config.json` of Qwen/Qwen3-8B.
pub(super) const QWEN3_8B: LlamaConfig = LlamaConfig {
    vocabulary: 151_936,
    hidden: 4096,
    feed_forward: 12_288,
    layers: 36,
    heads: 32,
    kv_heads: 8,
    qkv_bias: false,
    qk_norm: QkNorm::Heads,
    ..QWEN25_7B
};

/// A small one: tied, of 32k tokens, and with the vocabulary of Qwen2.5-0.5B.
const fn small25(name: &'static str, about: &'static str, sizes: [u64; 5]) -> Preset {
    let [layers, hidden, feed_forward, heads, kv_heads] = sizes;
    let head = hidden / heads;
    let vocabulary = 151_936;
    let config = LlamaConfig {
        vocabulary,
        layers: layers as u32,
        hidden,
        feed_forward,
        heads,
        kv_heads,
        head,
        tied: true,
        ..QWEN25_7B
    };
    Preset { name, about, context: 32_768, config: ModelConfig::Llama(config) }
}

const fn qwen25(
    name: &'static str,
    about: &'static str,
    [layers, hidden, feed_forward, heads, kv_heads]: [u64; 5],
) -> Preset {
    let config = LlamaConfig { layers: layers as u32, hidden, feed_forward, heads, kv_heads, ..QWEN25_7B };
    Preset { name, about, context: 131_072, config: ModelConfig::Llama(config) }
}

const fn qwen3(
    name: &'static str,
    about: &'static str,
    tied: bool,
    [layers, hidden, feed_forward, heads]: [u64; 4],
) -> Preset {
    let config = LlamaConfig { layers: layers as u32, hidden, feed_forward, heads, tied, ..QWEN3_8B };
    Preset { name, about, context: 40_960, config: ModelConfig::Llama(config) }
}

/// Each of `config.json` of the model of its name in Qwen's space on the hub.
pub(super) const PRESETS: &[Preset] = &[
    small25("qwen2.5-0.5b", "Qwen2.5, 0.5B parameters", [24, 896, 4864, 14, 2]),
    small25("qwen2.5-1.5b", "Qwen2.5, 1.5B parameters", [28, 1536, 8960, 12, 2]),
    small25("qwen2.5-3b", "Qwen2.5, 3.1B parameters", [36, 2048, 11_008, 16, 2]),
    qwen25("qwen2.5-7b", "Qwen2.5, 7.6B parameters", [28, 3584, 18_944, 28, 4]),
    qwen25("qwen2.5-14b", "Qwen2.5, 15B parameters", [48, 5120, 13_824, 40, 8]),
    qwen25("qwen2.5-32b", "Qwen2.5, 33B parameters", [64, 5120, 27_648, 40, 8]),
    qwen25("qwen2.5-72b", "Qwen2.5, 73B parameters", [80, 8192, 29_568, 64, 8]),
    qwen3("qwen3-0.6b", "Qwen3, 0.6B parameters", true, [28, 1024, 3072, 16]),
    qwen3("qwen3-1.7b", "Qwen3, 1.7B parameters", true, [28, 2048, 6144, 16]),
    qwen3("qwen3-4b", "Qwen3, 4.0B parameters", true, [36, 2560, 9728, 32]),
    qwen3("qwen3-8b", "Qwen3, 8.2B parameters", false, [36, 4096, 12_288, 32]),
    qwen3("qwen3-14b", "Qwen3, 15B parameters", false, [40, 5120, 17_408, 40]),
    qwen3("qwen3-32b", "Qwen3, 33B parameters", false, [64, 5120, 25_600, 64]),
];
