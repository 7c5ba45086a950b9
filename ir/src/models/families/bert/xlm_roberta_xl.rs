//! XLM-RoBERTa XL: norms of what branches read, and none of embeddings.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "xlm-roberta-xl",
    class: "XLMRobertaXLForCausalLM",
    keys: Keys { class: "XLMRobertaXLConfig", lists: &[KEYS, ROBERTA_KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "roberta.",
        embedding: "roberta.embeddings.word_embeddings.weight",
        outer: roberta_outer!(
            "roberta.",
            HubTensor::vector("roberta.encoder.LayerNorm.weight", &["final_norm"]),
            HubTensor::vector("roberta.encoder.LayerNorm.bias", &["final_norm_bias"]),
        ),
        inner: &[NORMS_BEFORE, PRODUCTS],
        ..ROBERTA
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "250880", VOCABULARY),
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["num_hidden_layers"], "36", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["intermediate_size"], "10240", FEED_FORWARD),
    Key::read(&["max_position_embeddings"], "514", POSITIONS),
    Key::read(&["type_vocab_size"], "1", "kinds of tokens; all tokens are of the first one"),
    Key::read(&["layer_norm_eps"], "1e-05", LAYER_NORM_EPS),
];

const NORMS_BEFORE: &[HubTensor] = &[
    HubTensor::vector("attention.self_attn_layer_norm.weight", &["norm1"]),
    HubTensor::vector("attention.self_attn_layer_norm.bias", &["norm1_bias"]),
    HubTensor::vector("LayerNorm.weight", &["norm2"]),
    HubTensor::vector("LayerNorm.bias", &["norm2_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(LlamaConfig { norms: Norms::Before, embedding_norm: EmbeddingNorm::None, ..roberta(fields)? }.into())
}
