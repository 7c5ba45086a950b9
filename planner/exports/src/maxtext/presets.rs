//! Models of MaxText by name.

/// Models by their `model_name` and the preset of the same sizes.
const MODELS: [(&str, &str); 30] = [
    ("llama2-7b", "llama2-7b"),
    ("llama2-13b", "llama2-13b"),
    ("llama2-70b", "llama2-70b"),
    ("llama3-8b", "llama3-8b"),
    ("llama3.1-8b", "llama3.1-8b"),
    ("llama3-70b", "llama3-70b"),
    ("llama3.1-70b", "llama3.1-70b"),
    ("llama3.3-70b", "llama3.3-70b"),
    ("llama3-405b", "llama3.1-405b"),
    ("llama3.1-405b", "llama3.1-405b"),
    ("mistral-7b", "mistral-7b"),
    ("mixtral-8x7b", "mixtral-8x7b"),
    ("mixtral-8x22b", "mixtral-8x22b"),
    ("gemma2-2b", "gemma2-2b"),
    ("gemma2-9b", "gemma2-9b"),
    ("gemma2-27b", "gemma2-27b"),
    ("gpt3-175b", "gpt3-175b"),
    ("gpt-oss-20b", "gpt-oss-20b"),
    ("gpt-oss-120b", "gpt-oss-120b"),
    ("deepseek2-236b", "deepseek-v2"),
    ("deepseek3-671b", "deepseek-v3"),
    ("qwen3-0.6b", "qwen3-0.6b"),
    ("qwen3-1.7b", "qwen3-1.7b"),
    ("qwen3-4b", "qwen3-4b"),
    ("qwen3-8b", "qwen3-8b"),
    ("qwen3-14b", "qwen3-14b"),
    ("qwen3-32b", "qwen3-32b"),
    ("qwen3-30b-a3b", "qwen3-30b-a3b"),
    ("qwen3-235b-a22b", "qwen3-235b-a22b"),
    ("llama4-17b-16e", "llama4-scout"),
];

/// The preset of a model.
pub(super) fn preset(name: &str) -> Option<&'static str> {
    MODELS.into_iter().find(|(of, _)| *of == name).map(|(_, preset)| preset)
}
