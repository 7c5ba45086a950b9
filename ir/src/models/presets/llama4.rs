//! Llama 4, its text models.

use super::Preset;
use super::llama::{LLAMA3_8B, PLAIN};
use crate::models::{Experts, LayerSet, LlamaConfig, ModelConfig, QkNorm, Rotation, Temperature, Window};
use crate::ops::Scaling;

/// `config.json` of meta-llama/Llama-4-Scout-17B-16E, its `text_config`: each fourth layer has no positions and sees all.
const SCOUT: LlamaConfig = LlamaConfig {
    vocabulary: 202_048,
    hidden: 5120,
    feed_forward: 16_384,
    layers: 48,
    heads: 40,
    rotation: Rotation {
        theta: 500_000.0,
        scaling: Some(Scaling::Llama3 { factor: 16.0, low: 1.0, high: 1.0, context: 8192 }),
        ..PLAIN
    },
    nope: LayerSet::Every(4),
    temperature: Some(Temperature { every: 8192, by: 0.1 }),
    window: Some(Window { chunked: true, full: LayerSet::Every(4), ..Window::of_all(8192) }),
    pad: Some(200_018),
    qk_norm: QkNorm::Turned,
    experts: Some(experts(16, LayerSet::None)),
    ..LLAMA3_8B
};

const fn experts(experts: u64, dense: LayerSet) -> Experts {
    Experts { dense, shared: 8192, scaled_inputs: true, renormalise: false, ..Experts::softmax(experts, 1, 8192) }
}

const fn named(name: &'static str, about: &'static str, context: u64, config: LlamaConfig) -> Preset {
    Preset { name, about, context, config: ModelConfig::Llama(config) }
}

pub(super) const PRESETS: &[Preset] = &[
    named(
        "llama4-scout",
        "Llama 4 Scout, 108B parameters, 1 of 16 experts: chunks of 8192 in three of four layers",
        10_485_760,
        SCOUT,
    ),
    named(
        "llama4-maverick",
        "Llama 4 Maverick, 401B parameters, 1 of 128 experts in every second layer: chunks of 8192 in three of four layers",
        1_048_576,
        // config.json of meta-llama/Llama-4-Maverick-17B-128E, its text_config.
        LlamaConfig {
            rotation: Rotation { theta: 500_000.0, ..PLAIN },
            qk_norm: QkNorm::None,
            experts: Some(experts(128, LayerSet::AllBut(2))),
            ..SCOUT
        },
    ),
];
