//! MoE models. None of them was published with a capacity factor: no tokens are dropped.

use super::Preset;
use super::llama::{LLAMA3_8B, PLAIN};
use super::qwen::{QWEN3_8B, QWEN25_7B};
use crate::models::{Clamp, Experts, Latent, LayerSet, LlamaConfig, ModelConfig, QkNorm, Rotation, Window};
use crate::ops::{GroupLimit, Scaling};

/// `config.json` of mistralai/Mixtral-8x7B-v0.1.
const MIXTRAL_8X7B: LlamaConfig = LlamaConfig {
    vocabulary: 32_000,
    rotation: Rotation { theta: 1_000_000.0, ..PLAIN },
    experts: Some(Experts::softmax(8, 2, 14_336)),
    ..LLAMA3_8B
};

/// `config.json` of deepseek-ai/DeepSeek-V2-Lite, trained as here before YaRN lengthened its context.
const DEEPSEEK_V2_LITE: LlamaConfig = LlamaConfig {
    vocabulary: 102_400,
    hidden: 2048,
    feed_forward: 10_944,
    layers: 27,
    heads: 16,
    kv_heads: 16,
    head: 192,
    norm_eps: 1e-6,
    rotation: PLAIN,
    latent: Some(Latent { query_rank: None, key_rank: 512, plain: 128, turned: 64, value: 128, score_factor: 1.0 }),
    experts: Some(Experts {
        shared: 2 * 1408,
        dense: LayerSet::First(1),
        renormalise: false,
        ..Experts::softmax(64, 6, 1408)
    }),
    ..LLAMA3_8B
};

/// Latent attention with queries of a rank of their own: `config.json` of deepseek-ai/DeepSeek-V2 and DeepSeek-V3.
const LARGE: Option<Latent> =
    Some(Latent { query_rank: Some(1536), key_rank: 512, plain: 128, turned: 64, value: 128, score_factor: 1.0 });

/// `config.json` of deepseek-ai/DeepSeek-V3, before YaRN and without the layer that predicts a second token.
const DEEPSEEK_V3: LlamaConfig = LlamaConfig {
    vocabulary: 129_280,
    hidden: 7168,
    feed_forward: 18_432,
    layers: 61,
    heads: 128,
    kv_heads: 128,
    latent: LARGE,
    experts: Some(Experts { limit: Some(GroupLimit { groups: 8, from: 4, by: 2 }), ..third(256, 3, 2048, 2.5) }),
    ..DEEPSEEK_V2_LITE
};

/// The experts of DeepSeek-V3 and its likes: eight of each token, one more that all take, sigmoid scores with a bias.
const fn third(experts: u64, dense_layers: u32, size: u64, scale: f64) -> Experts {
    Experts {
        shared: size,
        dense: LayerSet::First(dense_layers),
        sigmoid: true,
        bias: true,
        scale,
        ..Experts::softmax(experts, 8, size)
    }
}

/// The experts of Qwen1.5 and Qwen2: a shared one of another size, with a gate.
const fn qwen2(experts: u64, chosen: u64, size: u64, shared: u64) -> Experts {
    Experts { shared, shared_gate: true, renormalise: false, ..Experts::softmax(experts, chosen, size) }
}

/// `config.json` of zai-org/GLM-4.5, without the layer that predicts a second token. Half of a head turns.
const GLM_45: LlamaConfig = LlamaConfig {
    vocabulary: 151_552,
    hidden: 5120,
    feed_forward: 12_288,
    layers: 92,
    heads: 96,
    rotation: Rotation { theta: 1_000_000.0, turned: Some(64), ..PLAIN },
    pad: Some(151_329),
    qkv_bias: true,
    qk_norm: QkNorm::Heads,
    experts: Some(third(160, 3, 1536, 2.5)),
    ..LLAMA3_8B
};

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
    },
    window: Some(Window { full: LayerSet::Every(2), ..Window::of_all(128) }),
    pad: Some(199_999),
    qkv_bias: true,
    out_bias: true,
    sinks: true,
    experts: Some(oss(32)),
    ..LLAMA3_8B
};

const fn oss(experts: u64) -> Experts {
    let clamp = Some(Clamp { alpha: 1.702, limit: 7.0 });
    Experts { biases: true, clamp, ..Experts::softmax(experts, 4, 2880) }
}

const fn named(name: &'static str, about: &'static str, context: u64, config: LlamaConfig) -> Preset {
    Preset { name, about, context, config: ModelConfig::Llama(config) }
}

pub(super) const PRESETS: &[Preset] = &[
    named("mixtral-8x7b", "Mixtral, 47B parameters, 2 of 8 experts", 32_768, MIXTRAL_8X7B),
    named(
        "mixtral-8x22b",
        "Mixtral, 141B parameters, 2 of 8 experts",
        65_536,
        // config.json of mistralai/Mixtral-8x22B-v0.1.
        LlamaConfig {
            hidden: 6144,
            feed_forward: 16_384,
            layers: 56,
            heads: 48,
            experts: Some(Experts::softmax(8, 2, 16_384)),
            ..MIXTRAL_8X7B
        },
    ),
    named(
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
    named(
        "qwen3-235b-a22b",
        "Qwen3, 235B parameters, 8 of 128 experts",
        40_960,
        // config.json of Qwen/Qwen3-235B-A22B.
        LlamaConfig { layers: 94, heads: 64, kv_heads: 4, experts: Some(Experts::softmax(128, 8, 1536)), ..QWEN3_8B },
    ),
    named("deepseek-v2-lite", "DeepSeek-V2, 16B parameters, 6 of 64 experts", 32_768, DEEPSEEK_V2_LITE),
    named(
        "deepseek-v2",
        "DeepSeek-V2, 236B parameters, 6 of 160 experts",
        131_072,
        // config.json of deepseek-ai/DeepSeek-V2.
        LlamaConfig {
            hidden: 5120,
            feed_forward: 12_288,
            layers: 60,
            heads: 128,
            kv_heads: 128,
            latent: LARGE,
            experts: Some(Experts {
                shared: 2 * 1536,
                dense: LayerSet::First(1),
                limit: Some(GroupLimit { groups: 8, from: 3, by: 1 }),
                renormalise: false,
                scale: 16.0,
                ..Experts::softmax(160, 6, 1536)
            }),
            ..DEEPSEEK_V2_LITE
        },
    ),
    named("deepseek-v3", "DeepSeek-V3, 671B parameters, 8 of 256 experts", 131_072, DEEPSEEK_V3),
    named(
        "moonlight-16b",
        "Moonlight, 16B parameters, 6 of 64 experts",
        8192,
        // config.json of moonshotai/Moonlight-16B-A3B.
        LlamaConfig {
            vocabulary: 163_840,
            feed_forward: 11_264,
            norm_eps: 1e-5,
            rotation: Rotation { theta: 50_000.0, ..PLAIN },
            experts: Some(Experts { shared: 2 * 1408, chosen: 6, ..third(64, 1, 1408, 2.446) }),
            ..DEEPSEEK_V2_LITE
        },
    ),
    named(
        "kimi-k2",
        "Kimi K2, 1.0T parameters, 8 of 384 experts",
        131_072,
        // config.json of moonshotai/Kimi-K2-Base.
        LlamaConfig {
            vocabulary: 163_840,
            heads: 64,
            kv_heads: 64,
            rotation: Rotation { theta: 50_000.0, ..PLAIN },
            experts: Some(third(384, 1, 2048, 2.827)),
            ..DEEPSEEK_V3
        },
    ),
    named(
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
            experts: Some(qwen2(60, 4, 1408, 5632)),
            ..LLAMA3_8B
        },
    ),
    named(
        "qwen2-57b-a14b",
        "Qwen2, 57B parameters, 8 of 64 experts",
        32_768,
        // config.json of Qwen/Qwen2-57B-A14B.
        LlamaConfig { vocabulary: 151_936, experts: Some(qwen2(64, 8, 2560, 20_480)), ..QWEN25_7B },
    ),
    named("glm-4.5", "GLM-4.5, 353B parameters, 8 of 160 experts", 131_072, GLM_45),
    named(
        "glm-4.5-air",
        "GLM-4.5 Air, 107B parameters, 8 of 128 experts",
        131_072,
        // config.json of zai-org/GLM-4.5-Air.
        LlamaConfig {
            hidden: 4096,
            feed_forward: 10_944,
            layers: 46,
            qk_norm: QkNorm::None,
            experts: Some(third(128, 1, 1408, 1.0)),
            ..GLM_45
        },
    ),
    named(
        "gpt-oss-20b",
        "gpt-oss, 21B parameters, 4 of 32 experts, windows of 128 in every second layer",
        131_072,
        OSS_20B,
    ),
    named(
        "gpt-oss-120b",
        "gpt-oss, 117B parameters, 4 of 128 experts, windows of 128 in every second layer",
        131_072,
        // config.json of openai/gpt-oss-120b.
        LlamaConfig { layers: 36, experts: Some(oss(128)), ..OSS_20B },
    ),
];
