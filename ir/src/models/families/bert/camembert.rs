//! CamemBERT: RoBERTa for French.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "camembert",
    class: "CamembertForCausalLM",
    keys: Keys { class: "CamembertConfig", lists: &[ROBERTA_KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: ROBERTA_ITSELF,
    read,
};

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(roberta(fields)?.into())
}
