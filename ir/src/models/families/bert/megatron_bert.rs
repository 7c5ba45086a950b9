//! BERT of Megatron-LM: norms of what branches read, and none of embeddings.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "megatron-bert",
    class: "MegatronBertForCausalLM",
    keys: Keys { class: "MegatronBertConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "bert.",
        embedding: "bert.embeddings.word_embeddings.weight",
        outer: bert_outer!(
            "bert.",
            HubTensor::vector("bert.encoder.ln.weight", &["final_norm"]),
            HubTensor::vector("bert.encoder.ln.bias", &["final_norm_bias"]),
        ),
        inner: &[NORMS_BEFORE, PRODUCTS],
        ..BERT
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "29056", VOCABULARY),
    Key::read(&["hidden_size"], "1024", HIDDEN),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["intermediate_size"], "4096", FEED_FORWARD),
];

const NORMS_BEFORE: &[HubTensor] = &[
    HubTensor::vector("attention.ln.weight", &["norm1"]),
    HubTensor::vector("attention.ln.bias", &["norm1_bias"]),
    HubTensor::vector("ln.weight", &["norm2"]),
    HubTensor::vector("ln.bias", &["norm2_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(LlamaConfig { norms: Norms::Before, embedding_norm: EmbeddingNorm::None, ..bert(fields)? }.into())
}
