//! The keys inside `rope_parameters` and `rope_scaling`.

use super::{Key, Keys};

/// The keys of these objects.
pub const ROPE: Keys = Keys { class: "the rotary embedding", lists: &[ROWS] };

const ROWS: &[Key] = &[
    Key::read(&["rope_type"], "\"default\"", "default, linear, llama3, yarn or longrope; `type` in older files"),
    Key::read(&["type"], "\"default\"", "the kind, where `rope_type` does not say it"),
    Key::read(&["rope_theta"], "", "base of the frequencies, over the file's own"),
    Key::read(&["factor"], "", "what low frequencies are divided by"),
    Key::read(&["low_freq_factor", "high_freq_factor"], "", "llama3: turns that bound low and high frequencies"),
    Key::read(&["original_max_position_embeddings"], "", "context before scaling; else `max_position_embeddings`"),
    Key::read(&["beta_fast"], "32", "yarn: turns from which a frequency is unchanged; null or 0: 32"),
    Key::read(&["beta_slow"], "1", "yarn: turns up to which a frequency is lowered; null or 0: 1"),
    Key::read(&["truncate"], "true", "yarn: bounds are rounded outwards to full pairs"),
    Key::read(&["attention_factor"], "null", "yarn and longrope: what turned queries and keys are multiplied by"),
    Key::read(&["mscale", "mscale_all_dim"], "null", "yarn: where that comes from; DeepSeek: and the scores' factor"),
    Key::read(&["partial_rotary_factor"], "", "the part of a head that turns; 1.0 but for phi3, gpt_neox and glm4_moe"),
    Key::read(&["short_factor"], "", "longrope: divisors of frequencies in sequences up to the context before scaling"),
    Key::read(&["long_factor"], "", "longrope: those in longer sequences"),
    Key::nothing(
        &["mrope_section", "mrope_interleaved"],
        "the pairs that turn by the time, row and column of an image; those of text are one number",
    ),
    Key::nothing(&["llama_4_scaling_beta"], "ministral3: how strongly queries grow, which its family reads"),
    Key::nothing(&["finetuned", "max_position_embeddings"], "no class reads it"),
];
