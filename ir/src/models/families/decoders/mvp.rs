//! The decoder of MVP: BART without prompts.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "mvp",
    class: "MvpForCausalLM",
    keys: Keys { class: "MvpConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: DECODER,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50267", VOCABULARY),
    Key::only(&["use_prompt"], "false", "there are no learned prompts"),
    Key::nothing(&["prompt_length", "prompt_mid_dim"], "of learned prompts"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(bart(fields)?.into())
}
