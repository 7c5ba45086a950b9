//! RoBERTa with norms of what branches read.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "roberta-prelayernorm",
    class: "RobertaPreLayerNormForCausalLM",
    keys: Keys { class: "RobertaPreLayerNormConfig", lists: &[KEYS, ROBERTA_KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "roberta_prelayernorm.",
        embedding: "roberta_prelayernorm.embeddings.word_embeddings.weight",
        outer: roberta_outer!(
            "roberta_prelayernorm.",
            HubTensor::vector("roberta_prelayernorm.LayerNorm.weight", &["final_norm"]),
            HubTensor::vector("roberta_prelayernorm.LayerNorm.bias", &["final_norm_bias"]),
        ),
        inner: &[NORMS_BEFORE, PRODUCTS],
        ..ROBERTA
    },
    read,
};

const KEYS: &[Key] = &[Key::read(&["vocab_size"], "50265", VOCABULARY)];

const NORMS_BEFORE: &[HubTensor] = &[
    HubTensor::vector("attention.LayerNorm.weight", &["norm1"]),
    HubTensor::vector("attention.LayerNorm.bias", &["norm1_bias"]),
    HubTensor::vector("intermediate.LayerNorm.weight", &["norm2"]),
    HubTensor::vector("intermediate.LayerNorm.bias", &["norm2_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(LlamaConfig { norms: Norms::Before, ..roberta(fields)? }.into())
}
