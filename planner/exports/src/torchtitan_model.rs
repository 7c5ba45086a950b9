//! Models of torchtitan by the names of its TOML files.

/// Models by their name, their flavor, and the preset of the same sizes.
const MODELS: [(&str, &str, &str); 18] = [
    ("llama3", "8B", "llama3-8b"),
    ("llama3", "70B", "llama3-70b"),
    ("llama3", "405B", "llama3.1-405b"),
    ("llama4", "17bx16e", "llama4-scout"),
    ("llama4", "17bx128e", "llama4-maverick"),
    ("deepseek_v3", "16B", "deepseek-v2-lite"),
    ("deepseek_v3", "236B", "deepseek-v2"),
    ("deepseek_v3", "671B", "deepseek-v3"),
    ("qwen3", "0.6B", "qwen3-0.6b"),
    ("qwen3", "1.7B", "qwen3-1.7b"),
    ("qwen3", "4B", "qwen3-4b"),
    ("qwen3", "8B", "qwen3-8b"),
    ("qwen3", "14B", "qwen3-14b"),
    ("qwen3", "32B", "qwen3-32b"),
    ("qwen3", "30B-A3B", "qwen3-30b-a3b"),
    ("qwen3", "235B-A22B", "qwen3-235b-a22b"),
    ("gpt_oss", "20b", "gpt-oss-20b"),
    ("gpt_oss", "120b", "gpt-oss-120b"),
];

/// The preset of a model. Flavors that only differ in their kernel of attention have it as a suffix.
pub(crate) fn preset(name: &str, flavor: &str) -> Option<&'static str> {
    let flavor = flavor.trim_end_matches("_flex").trim_end_matches("_varlen").trim_end_matches("_irope");
    MODELS.into_iter().find(|(of, size, _)| *of == name && *size == flavor).map(|(.., preset)| preset)
}
