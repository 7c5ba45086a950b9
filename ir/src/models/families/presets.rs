//! Published configurations by name, and small ones for tests.

use super::prelude::Preset;
use super::{
    apertus, cohere2, deepseek_v2, deepseek_v3, deepseek_v32, dots1, gemma2, gemma3_text, glm4_moe, gpt_neox, gpt_oss,
    gpt2, granite, llama, llama4_text, minimax_m2, mistral, mixtral, olmo2, olmo3, phi3, qwen2, qwen2_moe, qwen3,
    qwen3_moe, smollm3, tiny,
};

/// All presets, in the order in which they are listed.
const PRESETS: &[&[Preset]] = &[
    gpt2::PRESETS,
    gpt_neox::PRESETS,
    llama::PRESETS,
    llama4_text::PRESETS,
    mistral::PRESETS,
    olmo2::PRESETS,
    olmo3::PRESETS,
    granite::PRESETS,
    apertus::PRESETS,
    cohere2::PRESETS,
    phi3::PRESETS,
    smollm3::PRESETS,
    phi3::LATER,
    gemma2::PRESETS,
    gemma3_text::PRESETS,
    qwen2::PRESETS,
    qwen3::PRESETS,
    mixtral::PRESETS,
    qwen3_moe::PRESETS,
    deepseek_v2::PRESETS,
    deepseek_v3::PRESETS,
    deepseek_v32::PRESETS,
    qwen2_moe::PRESETS,
    glm4_moe::PRESETS,
    gpt_oss::PRESETS,
    minimax_m2::PRESETS,
    dots1::PRESETS,
    tiny::PRESETS,
];

/// All presets.
pub fn presets() -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().copied().flatten()
}

/// The preset of a name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    presets().find(|preset| preset.name == name)
}
