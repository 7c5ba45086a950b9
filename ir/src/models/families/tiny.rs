//! Small models on bytes, to try things on: 256 bytes and an end of document.

use super::gemma3_text::GEMMA3_4B;
use super::gpt2::GPT2;
use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::Preset;
use crate::models::{Experts, Gpt2Config, LayerSet, LlamaConfig, ModelConfig, Rotation, Window};

/// Small enough to train on a CPU in minutes, wide enough for full matmul tiles; heads divide by four, so that tp = 4 fits.
const TINY_LLAMA: LlamaConfig = LlamaConfig {
    vocabulary: 257,
    hidden: 256,
    feed_forward: 768,
    layers: 4,
    heads: 8,
    kv_heads: 4,
    head: 32,
    rotation: PLAIN,
    tied: true,
    ..LLAMA3_8B
};

pub(super) const PRESETS: &[Preset] = &[
    Preset {
        name: "tiny-llama",
        about: "a Llama of 3.2M parameters on bytes, to try things on",
        context: 256,
        config: ModelConfig::Llama(TINY_LLAMA),
    },
    Preset {
        name: "tiny-moe",
        about: "a Mixtral of 5.8M parameters on bytes, 2 of 8 experts, to try things on",
        context: 256,
        // As much work for a token as in tiny-llama's feed-forward net: 2 experts of half its size.
        config: ModelConfig::Llama(LlamaConfig {
            experts: Some(Experts { capacity: Some(2.0), group: Some(32), ..Experts::softmax(8, 2, 256) }),
            ..TINY_LLAMA
        }),
    },
    Preset {
        name: "tiny-gpt2",
        about: "a GPT-2 of 0.9M parameters on bytes, to try things on",
        context: 256,
        config: ModelConfig::Gpt2(Gpt2Config {
            vocabulary: 257,
            positions: Some(256),
            hidden: 128,
            feed_forward: 512,
            layers: 4,
            heads: 4,
            ..GPT2
        }),
    },
    Preset {
        name: "tiny-gemma",
        about: "a Gemma of 3.2M parameters on bytes, windows of 64 in two of three layers, to try things on",
        context: 256,
        config: ModelConfig::Llama(LlamaConfig {
            vocabulary: 257,
            hidden: 256,
            feed_forward: 768,
            heads: 8,
            kv_heads: 4,
            head: 32,
            layers: 4,
            softcap: Some(50.0),
            logit_softcap: Some(30.0),
            window: Some(Window { full: LayerSet::Every(3), ..Window::of_all(64) }),
            rotation: Rotation { theta: 1_000_000.0, ..PLAIN },
            pad: None,
            ..GEMMA3_4B
        }),
    },
];
