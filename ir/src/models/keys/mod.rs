//! The keys that a `config.json` can have, by family: the value of an absent key, and the handling of a stated one.

mod check;
mod newer;
mod table;

pub use table::KEYS;

use serde_json::Value;

pub(super) use check::check;

/// A family that is read: its `model_type`, and its configuration class in `transformers`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Family {
    /// The value of `model_type`.
    pub name: &'static str,
    /// The class that `transformers` reads the file with.
    pub class: &'static str,
}

/// All families that are read.
pub const FAMILIES: [Family; 19] = [
    Family { name: "llama", class: "LlamaConfig" },
    Family { name: "mistral", class: "MistralConfig" },
    Family { name: "qwen2", class: "Qwen2Config" },
    Family { name: "qwen3", class: "Qwen3Config" },
    Family { name: "mixtral", class: "MixtralConfig" },
    Family { name: "qwen2_moe", class: "Qwen2MoeConfig" },
    Family { name: "qwen3_moe", class: "Qwen3MoeConfig" },
    Family { name: "deepseek_v2", class: "DeepseekV2Config" },
    Family { name: "deepseek_v3", class: "DeepseekV3Config" },
    Family { name: "gemma2", class: "Gemma2Config" },
    Family { name: "gemma3_text", class: "Gemma3TextConfig" },
    Family { name: "olmo2", class: "Olmo2Config" },
    Family { name: "phi3", class: "Phi3Config" },
    Family { name: "gpt_neox", class: "GPTNeoXConfig" },
    Family { name: "glm4_moe", class: "Glm4MoeConfig" },
    Family { name: "gpt_oss", class: "GptOssConfig" },
    Family { name: "smollm3", class: "SmolLM3Config" },
    Family { name: "llama4_text", class: "Llama4TextConfig" },
    Family { name: "gpt2", class: "GPT2Config" },
];

/// The keys inside `rope_parameters` and `rope_scaling` are listed under this name.
pub const ROPE: &str = "rope";

/// The handling of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// It is read.
    Read,
    /// Only its default is accepted, since another value would change numbers.
    Only,
    /// It changes no number of a training run.
    Nothing,
    /// It is another name of this key.
    Alias(&'static str),
}

/// Keys of some families that mean the same thing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Key {
    /// Their names.
    pub names: &'static [&'static str],
    /// The families.
    pub families: &'static [&'static str],
    /// The JSON value that an absent key stands for; empty where the family has none: it must be stated, or follows from
    /// other keys.
    pub default: &'static str,
    /// Their handling.
    pub done: Done,
    /// Their meaning, or the reason why no or only one value is supported.
    pub about: &'static str,
}

impl Key {
    /// The value of an absent key.
    pub fn absent(&self) -> Option<Value> {
        serde_json::from_str(self.default).ok()
    }
}

/// The row of a key of a family.
pub(super) fn key(family: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.names.contains(&name) && key.families.contains(&family))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_of_a_family_has_one_row() {
        for family in FAMILIES {
            let names = || KEYS.iter().filter(|key| key.families.contains(&family.name)).flat_map(|key| key.names);
            for name in names() {
                assert_eq!(names().filter(|other| *other == name).count(), 1, "{} of {}", name, family.name);
            }
        }
    }

    #[test]
    fn rows_say_what_they_must() {
        for row in KEYS {
            let known = |name: &&str| FAMILIES.iter().any(|family| family.name == *name) || *name == ROPE;
            assert!(row.families.iter().all(known), "{row:?}");
            assert!(row.default.is_empty() || row.absent().is_some(), "{row:?}: no JSON");
            match row.done {
                Done::Only => assert!(!row.default.is_empty(), "{row:?}: which value?"),
                Done::Alias(of) => assert!(row.families.iter().all(|family| key(family, of).is_some()), "{row:?}"),
                Done::Read | Done::Nothing => {}
            }
        }
    }
}
