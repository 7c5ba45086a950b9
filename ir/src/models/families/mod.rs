//! The families of models that are read: one file each, and its row in [`FAMILIES`].

mod arcee;
mod deepseek;
mod gemma;
mod glm4_moe;
mod gpt2;
mod gpt_neox;
mod gpt_oss;
mod llama;
mod llama4_text;
mod mistral;
mod mixtral;
mod olmo2;
mod olmo3;
mod phi3;
mod prelude;
mod presets;
mod qwen;
mod smollm3;
mod tiny;

use deepseek::{deepseek_v2, deepseek_v3};
use gemma::{gemma2, gemma3_text};
use qwen::{qwen2, qwen2_moe, qwen3, qwen3_moe};

pub use prelude::{Composite, Family, Preset, Tied};
pub use presets::{preset, presets};

use super::error::ConfigError;
use super::keys::{Keys, ROPE};

/// All families that are read.
pub const FAMILIES: &[Family] = &[
    llama::FAMILY,
    mistral::FAMILY,
    qwen2::FAMILY,
    qwen3::FAMILY,
    mixtral::FAMILY,
    qwen2_moe::FAMILY,
    qwen3_moe::FAMILY,
    deepseek_v2::FAMILY,
    deepseek_v3::FAMILY,
    gemma2::FAMILY,
    gemma3_text::FAMILY,
    olmo2::FAMILY,
    olmo3::FAMILY,
    phi3::FAMILY,
    gpt_neox::FAMILY,
    glm4_moe::FAMILY,
    gpt_oss::FAMILY,
    smollm3::FAMILY,
    arcee::FAMILY,
    llama4_text::FAMILY,
    gpt2::FAMILY,
];

/// The family of a `model_type`.
///
/// # Errors
/// There is none.
pub fn family(model_type: &str) -> Result<&'static Family, ConfigError> {
    let found = FAMILIES.iter().find(|family| family.model_type == model_type);
    found.ok_or_else(|| {
        let mut wholes: Vec<&str> = FAMILIES.iter().filter_map(|family| Some(family.whole?.model_type)).collect();
        wholes.sort_unstable();
        let known = FAMILIES.iter().map(|family| family.model_type).chain(wholes).collect();
        ConfigError::UnknownFamily { found: model_type.to_string(), known }
    })
}

/// The keys of all families, and those of an object of rotary positions.
pub(super) fn all_keys() -> Vec<Keys> {
    FAMILIES.iter().map(|family| family.keys).chain([ROPE]).collect()
}
