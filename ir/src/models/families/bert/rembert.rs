//! RemBERT: small rows of the embedding, and large ones of the head.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "rembert",
    class: "RemBertForCausalLM",
    keys: Keys { class: "RemBertConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "rembert.",
        embedding: "rembert.embeddings.word_embeddings.weight",
        outer: outer!(
            "rembert.",
            HubTensor::linear("rembert.encoder.embedding_hidden_mapping_in.weight", &["emb_proj"]),
            HubTensor::vector("rembert.encoder.embedding_hidden_mapping_in.bias", &["emb_proj_bias"]),
            HubTensor::linear("cls.predictions.dense.weight", &["head_proj"]),
            HubTensor::vector("cls.predictions.dense.bias", &["head_proj_bias"]),
            HubTensor::vector("cls.predictions.LayerNorm.weight", &["head_norm"]),
            HubTensor::vector("cls.predictions.LayerNorm.bias", &["head_norm_bias"]),
            HubTensor::vector("cls.predictions.decoder.bias", &["out_bias"]),
            HubTensor::linear("cls.predictions.decoder.weight", &["out"]),
        ),
        ..BERT
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "250300", VOCABULARY),
    Key::read(&["hidden_size"], "1152", HIDDEN),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "18", HEADS),
    Key::read(&["input_embedding_size"], "256", "size of the rows of the embedding"),
    Key::read(&["output_embedding_size"], "1664", "size of what the head's matrix reads"),
    Key::read(&["intermediate_size"], "4608", FEED_FORWARD),
    Key::read(&["hidden_dropout_prob"], "0.0", DROPOUT),
    Key::read(&["attention_probs_dropout_prob"], "0.0", DROPOUT),
    Key::read(&["tie_word_embeddings"], "false", "the class ties nothing, whatever it states"),
    Key::nothing(&["classifier_dropout_prob"], "not of the language model"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = bert(fields)?;
    let head_layer =
        Some(HeadLayer { size: fields.get("output_embedding_size")?, bias: true, activation: base.activation });
    Ok(LlamaConfig { embedding_size: Some(fields.get("input_embedding_size")?), head_layer, tied: false, ..base }
        .into())
}
