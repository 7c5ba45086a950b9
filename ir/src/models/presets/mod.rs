//! Published configurations by name, and small ones for tests.

mod dense;
mod experts;
mod gemma;
mod gpt;
mod llama;
mod llama4;
mod neox;
mod qwen;
mod tiny;

use super::config::ModelConfig;

/// A configuration under a name.
#[derive(Clone, Debug)]
pub struct Preset {
    /// The name on the command line.
    pub name: &'static str,
    /// One line on it.
    pub about: &'static str,
    /// The longest sequence it was trained on, in tokens.
    pub context: u64,
    /// The configuration.
    pub config: ModelConfig,
}

/// All presets.
pub fn presets() -> impl Iterator<Item = &'static Preset> {
    [
        gpt::PRESETS,
        neox::PRESETS,
        llama::PRESETS,
        llama4::PRESETS,
        dense::PRESETS,
        gemma::PRESETS,
        qwen::PRESETS,
        experts::PRESETS,
        tiny::PRESETS,
    ]
    .into_iter()
    .flatten()
}

/// The preset of a name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    presets().find(|preset| preset.name == name)
}
