//! Published configurations by name, and two small ones to try things on.

use super::config::ModelConfig;
use super::{Gpt2Config, LlamaConfig};
use crate::ops::Scaling;

/// A configuration under a name.
#[derive(Clone, Debug)]
pub struct Preset {
    /// What a user types.
    pub name: &'static str,
    /// One line on it.
    pub about: &'static str,
    /// The longest sequence it was trained on, in tokens.
    pub context: u64,
    /// The configuration.
    pub config: ModelConfig,
}

/// The preset of a name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// What the GPT-2 models share: `config.json` of openai-community/gpt2 on the Hugging Face hub. That file states dropout of
/// 0.1 everywhere; here it is off.
const GPT2: Gpt2Config = Gpt2Config {
    vocabulary: 50_257,
    positions: 1024,
    hidden: 768,
    feed_forward: 3072,
    layers: 12,
    heads: 12,
    norm_eps: 1e-5,
    exact_gelu: false,
    post_norm: false,
    attention_dropout: 0.0,
    residual_dropout: 0.0,
    embedding_dropout: 0.0,
    tied: true,
    deviation: 0.02,
};

/// What the Llama 3 models share: `config.json` of meta-llama/Meta-Llama-3-8B.
const LLAMA3_8B: LlamaConfig = LlamaConfig {
    vocabulary: 128_256,
    hidden: 4096,
    feed_forward: 14_336,
    layers: 32,
    heads: 32,
    kv_heads: 8,
    head: 128,
    norm_eps: 1e-5,
    rope_theta: 500_000.0,
    rope_scaling: None,
    tied: false,
    qkv_bias: false,
    deviation: 0.02,
};

/// What the Llama 3.1 models share: `config.json` of meta-llama/Llama-3.1-8B.
const LLAMA31_8B: LlamaConfig = LlamaConfig {
    rope_scaling: Some(Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 8192 }),
    ..LLAMA3_8B
};

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset { name: "gpt2", about: "GPT-2, 124M parameters", context: 1024, config: ModelConfig::Gpt2(GPT2) },
    Preset {
        name: "gpt2-xl",
        about: "GPT-2, 1.5B parameters",
        context: 1024,
        // config.json of openai-community/gpt2-xl.
        config: ModelConfig::Gpt2(Gpt2Config { hidden: 1600, feed_forward: 6400, layers: 48, heads: 25, ..GPT2 }),
    },
    Preset {
        name: "llama2-7b",
        about: "Llama 2, 6.7B parameters",
        context: 4096,
        // config.json of meta-llama/Llama-2-7b-hf.
        config: ModelConfig::Llama(LlamaConfig {
            vocabulary: 32_000,
            feed_forward: 11_008,
            kv_heads: 32,
            rope_theta: 10_000.0,
            ..LLAMA3_8B
        }),
    },
    Preset {
        name: "llama3-8b",
        about: "Llama 3, 8.0B parameters",
        context: 8192,
        config: ModelConfig::Llama(LLAMA3_8B),
    },
    Preset {
        name: "llama3.1-70b",
        about: "Llama 3.1, 71B parameters",
        context: 131_072,
        // config.json of meta-llama/Llama-3.1-70B; Dubey et al. 2024, table 3.
        config: ModelConfig::Llama(LlamaConfig {
            hidden: 8192,
            feed_forward: 28_672,
            layers: 80,
            heads: 64,
            ..LLAMA31_8B
        }),
    },
    Preset {
        name: "llama3.1-405b",
        about: "Llama 3.1, 406B parameters",
        context: 131_072,
        // config.json of meta-llama/Llama-3.1-405B; Dubey et al. 2024, table 3.
        config: ModelConfig::Llama(LlamaConfig {
            hidden: 16_384,
            feed_forward: 53_248,
            layers: 126,
            heads: 128,
            ..LLAMA31_8B
        }),
    },
    Preset {
        name: "tiny-llama",
        about: "a Llama of 3.2M parameters on bytes, to try things on",
        context: 256,
        // 256 bytes and an end of document; small enough to train on a CPU in minutes, wide enough for full matmul tiles;
        // heads divide by four, so that tp = 4 fits.
        config: ModelConfig::Llama(LlamaConfig {
            vocabulary: 257,
            hidden: 256,
            feed_forward: 768,
            layers: 4,
            heads: 8,
            kv_heads: 4,
            head: 32,
            rope_theta: 10_000.0,
            tied: true,
            ..LLAMA3_8B
        }),
    },
    Preset {
        name: "tiny-gpt2",
        about: "a GPT-2 of 0.9M parameters on bytes, to try things on",
        context: 256,
        config: ModelConfig::Gpt2(Gpt2Config {
            vocabulary: 257,
            positions: 256,
            hidden: 128,
            feed_forward: 512,
            layers: 4,
            heads: 4,
            ..GPT2
        }),
    },
];
