//! Mistral: a window of all layers.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "mistral",
    class: "MistralForCausalLM",
    keys: Keys { class: "MistralConfig", lists: &[KEYS, ONE_TYPE, FIXED_NET, ROTARY, EVERY] },
    wholes: &[Composite::of("mistral3"), Composite::of("llava")],
    weights: USUAL,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "14336", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-6", LATENT_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["sliding_window"], "4096", WINDOW),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    Ok(LlamaConfig { window: windows::of_all(fields)?, ..base }.into())
}

/// `config.json` of mistralai/Mistral-7B-v0.1.
const MISTRAL_7B: LlamaConfig =
    LlamaConfig { vocabulary: 32_000, rotation: PLAIN, window: Some(Window::of_all(4096)), ..LLAMA3_8B };

/// `config.json` of mistralai/Mistral-7B-v0.3, and of the models after it: without a window.
const MISTRAL_7B_3: LlamaConfig =
    LlamaConfig { vocabulary: 32_768, rotation: Rotation { theta: 1_000_000.0, ..PLAIN }, window: None, ..MISTRAL_7B };

/// A preset without a constant of its own is the `config.json` of the model of its name.
pub(super) const PRESETS: &[Preset] = &[
    Preset::llama("mistral-7b", "Mistral 7B v0.1, 7.2B parameters: windows of 4096", 32_768, MISTRAL_7B),
    Preset::llama("mistral-7b-v0.3", "Mistral 7B v0.3, 7.2B parameters", 32_768, MISTRAL_7B_3),
    Preset::llama(
        "mistral-nemo-12b",
        "Mistral NeMo, 12B parameters",
        131_072,
        LlamaConfig { vocabulary: 131_072, hidden: 5120, layers: 40, ..MISTRAL_7B_3 },
    ),
    Preset::llama(
        "mistral-small-24b",
        "Mistral Small 3, 24B parameters",
        32_768,
        LlamaConfig {
            vocabulary: 131_072,
            hidden: 5120,
            feed_forward: 32_768,
            layers: 40,
            rotation: Rotation { theta: 100_000_000.0, ..PLAIN },
            ..MISTRAL_7B_3
        },
    ),
    Preset::llama(
        "mistral-large-123b",
        "Mistral Large 2, 123B parameters",
        131_072,
        LlamaConfig { hidden: 12_288, feed_forward: 28_672, layers: 88, heads: 96, ..MISTRAL_7B_3 },
    ),
];
