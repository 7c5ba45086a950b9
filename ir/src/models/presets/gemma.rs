//! Gemma 2 and 3, their text models.

use super::Preset;
use super::llama::{LLAMA3_8B, PLAIN};
use crate::models::{Activation, LayerSet, LlamaConfig, ModelConfig, Norms, QkNorm, Rotation, Window};
use crate::ops::Scaling;

/// `config.json` of google/gemma-2-9b. Each second layer has no window.
pub(super) const GEMMA2_9B: LlamaConfig = LlamaConfig {
    vocabulary: 256_000,
    feed_forward: 14_336,
    activation: Activation::GeluTanh,
    layers: 42,
    heads: 16,
    kv_heads: 8,
    head: 256,
    norm_eps: 1e-6,
    norms: Norms::Both,
    rotation: PLAIN,
    softcap: Some(50.0),
    logit_softcap: Some(30.0),
    window: Some(Window { full: LayerSet::Every(2), ..Window::of_all(4096) }),
    pad: Some(0),
    tied: true,
    scaled_embeddings: true,
    hidden: 3584,
    ..LLAMA3_8B
};

/// `config.json` of google/gemma-3-4b-pt, its `text_config`: one layer in six has no window, and frequencies of its own.
pub(super) const GEMMA3_4B: LlamaConfig = LlamaConfig {
    vocabulary: 262_208,
    feed_forward: 10_240,
    layers: 34,
    heads: 8,
    kv_heads: 4,
    rotation: Rotation { theta: 1_000_000.0, scaling: Some(Scaling::Linear { factor: 8.0 }), ..PLAIN },
    local_rotation: Some(PLAIN),
    softcap: None,
    logit_softcap: None,
    window: window(1024),
    qk_norm: QkNorm::Heads,
    hidden: 2560,
    ..GEMMA2_9B
};

/// `config.json` of google/gemma-3-1b-pt, without its sizes.
const GEMMA3_1B: LlamaConfig = LlamaConfig {
    vocabulary: 262_144,
    rotation: Rotation { theta: 1_000_000.0, ..PLAIN },
    window: window(512),
    ..GEMMA3_4B
};

const fn window(tokens: u64) -> Option<Window> {
    Some(Window { full: LayerSet::Every(6), ..Window::of_all(tokens) })
}

const fn named(name: &'static str, about: &'static str, context: u64, config: LlamaConfig) -> Preset {
    Preset { name, about, context, config: ModelConfig::Llama(config) }
}

/// Each of `config.json` of the model of its name in Google's space on the hub.
pub(super) const PRESETS: &[Preset] = &[
    named(
        "gemma2-2b",
        "Gemma 2, 2.6B parameters: windows of 4096 in every second layer",
        8192,
        LlamaConfig { hidden: 2304, feed_forward: 9216, layers: 26, heads: 8, kv_heads: 4, ..GEMMA2_9B },
    ),
    named("gemma2-9b", "Gemma 2, 9.2B parameters: windows of 4096 in every second layer", 8192, GEMMA2_9B),
    named(
        "gemma2-27b",
        "Gemma 2, 27B parameters: windows of 4096 in every second layer",
        8192,
        LlamaConfig {
            hidden: 4608,
            feed_forward: 36_864,
            layers: 46,
            heads: 32,
            kv_heads: 16,
            head: 128,
            score_size: Some(144.0),
            ..GEMMA2_9B
        },
    ),
    named(
        "gemma3-270m",
        "Gemma 3, 0.3B parameters: windows of 512 in five of six layers",
        32_768,
        LlamaConfig { hidden: 640, feed_forward: 2048, layers: 18, heads: 4, kv_heads: 1, ..GEMMA3_1B },
    ),
    named(
        "gemma3-1b",
        "Gemma 3, 1.0B parameters: windows of 512 in five of six layers",
        32_768,
        LlamaConfig { hidden: 1152, feed_forward: 6912, layers: 26, heads: 4, kv_heads: 1, ..GEMMA3_1B },
    ),
    named("gemma3-4b", "Gemma 3, 3.9B parameters: windows of 1024 in five of six layers", 131_072, GEMMA3_4B),
    named(
        "gemma3-12b",
        "Gemma 3, 12B parameters: windows of 1024 in five of six layers",
        131_072,
        LlamaConfig { hidden: 3840, feed_forward: 15_360, layers: 48, heads: 16, kv_heads: 8, ..GEMMA3_4B },
    ),
    named(
        "gemma3-27b",
        "Gemma 3, 27B parameters: windows of 1024 in five of six layers",
        131_072,
        LlamaConfig {
            hidden: 5376,
            feed_forward: 21_504,
            layers: 62,
            heads: 32,
            kv_heads: 16,
            head: 128,
            score_size: Some(168.0),
            ..GEMMA3_4B
        },
    ),
];
