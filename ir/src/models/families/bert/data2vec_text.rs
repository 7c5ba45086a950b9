//! data2vec of texts: RoBERTa.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "data2vec-text",
    class: "Data2VecTextForCausalLM",
    keys: Keys { class: "Data2VecTextConfig", lists: &[ROBERTA_KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "data2vec_text.",
        embedding: "data2vec_text.embeddings.word_embeddings.weight",
        outer: roberta_outer!("data2vec_text."),
        ..ROBERTA
    },
    read,
};

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(roberta(fields)?.into())
}
