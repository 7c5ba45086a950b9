//! The families of models that are read: one file each, and its row in [`FAMILIES`].

mod arcee;
mod common;
mod deepseek_v2;
mod deepseek_v3;
mod gemma2;
mod gemma3_text;
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
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_moe;
mod smollm3;
mod tensors;
mod tiny;

pub use presets::{Preset, preset, presets};

use super::config::{ConfigError, ModelConfig};
use super::fields::Fields;
use super::keys::Keys;
use super::weights::Weights;

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

/// A family of models: what a `config.json` can say of them, and how it is read.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The value of `model_type`.
    pub model_type: &'static str,
    /// The class of `transformers` that computes the model.
    pub class: &'static str,
    /// The keys of a file. Defaults are those of `transformers` 5.24; `tests/transformers/compare.py` holds them against it.
    pub keys: Keys,
    /// Files of models that read images, too, and have a text model of this family.
    pub whole: Option<Composite>,
    /// The names and shapes of weights in files.
    pub weights: Weights,
    /// Reads a file.
    pub(super) read: fn(&Fields) -> Result<ModelConfig, ConfigError>,
}

/// A model that reads images, too.
#[derive(Clone, Copy, Debug)]
pub struct Composite {
    /// The value of `model_type`.
    pub model_type: &'static str,
    /// The part that says whether the head is tied.
    pub tied: Tied,
}

/// The value that counts where the whole file and its text model state whether the head is tied, as in `transformers` 5.24.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tied {
    /// That of the whole file, if it has one.
    Whole,
    /// That of the text model.
    Text,
    /// The one that ties.
    Either,
}

/// The family of a `model_type`.
pub(super) fn named(model_type: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.model_type == model_type)
}
