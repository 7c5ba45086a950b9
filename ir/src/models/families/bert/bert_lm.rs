//! BERT, with its head.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "bert",
    class: "BertLMHeadModel",
    keys: Keys { class: "BertConfig", lists: &[SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "bert.",
        embedding: "bert.embeddings.word_embeddings.weight",
        outer: bert_outer!("bert."),
        ..BERT
    },
    read,
};

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(bert(fields)?.into())
}
