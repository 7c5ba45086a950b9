//! GPT-NeoX and Pythia.

use super::Preset;
use super::llama::{LLAMA3_8B, PLAIN};
use crate::models::{Activation, LlamaConfig, ModelConfig, Rotation};

/// The common fields of the models: `config.json` of EleutherAI/gpt-neox-20b.
pub(super) const NEOX_20B: LlamaConfig = LlamaConfig {
    vocabulary: 50_432,
    hidden: 6144,
    feed_forward: 24_576,
    gated: false,
    activation: Activation::GeluTanh,
    layers: 44,
    heads: 64,
    kv_heads: 64,
    head: 96,
    layer_norm: true,
    parallel: true,
    rotation: Rotation { turned: Some(24), ..PLAIN },
    qkv_bias: true,
    out_bias: true,
    net_bias: true,
    ..LLAMA3_8B
};

/// A Pythia: `config.json` of EleutherAI/pythia-410m and its likes. A quarter of a head turns.
const fn pythia(name: &'static str, about: &'static str, vocabulary: u64, [layers, hidden, heads]: [u64; 3]) -> Preset {
    let head = hidden / heads;
    let config = LlamaConfig {
        vocabulary,
        hidden,
        feed_forward: 4 * hidden,
        activation: Activation::GeluErf,
        layers: layers as u32,
        heads,
        kv_heads: heads,
        head,
        rotation: Rotation { turned: Some(head / 4), ..PLAIN },
        ..NEOX_20B
    };
    Preset { name, about, context: 2048, config: ModelConfig::Llama(config) }
}

pub(super) const PRESETS: &[Preset] = &[
    Preset {
        name: "gpt-neox-20b",
        about: "GPT-NeoX, 21B parameters",
        context: 2048,
        config: ModelConfig::Llama(NEOX_20B),
    },
    pythia("pythia-160m", "Pythia, 0.2B parameters", 50_304, [12, 768, 12]),
    pythia("pythia-410m", "Pythia, 0.4B parameters", 50_304, [24, 1024, 16]),
    pythia("pythia-1b", "Pythia, 1.0B parameters", 50_304, [16, 2048, 8]),
    pythia("pythia-1.4b", "Pythia, 1.4B parameters", 50_304, [24, 2048, 16]),
    pythia("pythia-2.8b", "Pythia, 2.8B parameters", 50_304, [32, 2560, 32]),
    pythia("pythia-6.9b", "Pythia, 6.9B parameters", 50_432, [32, 4096, 32]),
    pythia("pythia-12b", "Pythia, 12B parameters", 50_688, [36, 5120, 40]),
];
