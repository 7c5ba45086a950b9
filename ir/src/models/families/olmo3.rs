//! OLMo 3: OLMo 2 with a window in three of four layers, whose frequencies are not scaled.

use super::llama::PLAIN;
use super::olmo2;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "olmo3",
    class: "Olmo3ForCausalLM",
    keys: Keys { class: "Olmo3Config", lists: &[KEYS, olmo2::KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: olmo2::WEIGHTS,
    read,
};

const KEYS: &[Key] =
    &[Key::read(&["rope_theta"], "500000.0", THETA), Key::read(&["sliding_window"], "4096", WINDOW), LAYER_TYPES];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = olmo2::olmo(fields, Rope { local_theta: Some("rope_theta"), ..Rope::USUAL })?;
    let layers = Limited { is_needed: true, ..Limited::sliding(fields, base.layers)? };
    let window = layers.read(fields, |layer| (layer + 1).is_multiple_of(4))?;
    let local_rotation = base.local_rotation.filter(|_| window.is_some());
    Ok(LlamaConfig { local_rotation, window, ..base }.into())
}

pub(super) const PRESETS: &[Preset] = &[Preset::llama(
    "olmo3-7b",
    "OLMo 3, 7.3B parameters: windows of 4096 in three of four layers",
    65_536,
    // config.json of allenai/Olmo-3-1025-7B.
    LlamaConfig {
        vocabulary: 100_278,
        rotation: Rotation {
            scaling: Some(Scaling::Yarn { factor: 8.0, low: 1.0, high: 32.0, context: 8192, fractional: false }),
            gain: 1.2079441541679836,
            theta: 500_000.0,
            ..PLAIN
        },
        local_rotation: Some(Rotation { theta: 500_000.0, ..PLAIN }),
        window: Some(Window { tokens: 4096, chunked: false, full: LayerSet::Every(4) }),
        ..olmo2::OLMO2_7B
    },
)];
