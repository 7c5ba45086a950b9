//! RoBERTa: BERT whose positions begin behind the number of the padding token.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "roberta",
    class: "RobertaForCausalLM",
    keys: Keys { class: "RobertaConfig", lists: &[KEYS, ROBERTA_KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: ROBERTA_ITSELF,
    read,
};

const KEYS: &[Key] = &[Key::read(&["vocab_size"], "50265", VOCABULARY)];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(roberta(fields)?.into())
}
