//! ELECTRA: rows of the embedding are smaller than the stream.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "electra",
    class: "ElectraForCausalLM",
    keys: Keys { class: "ElectraConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "electra.",
        embedding: "electra.embeddings.word_embeddings.weight",
        outer: outer!(
            "electra.",
            HubTensor::linear("electra.embeddings_project.weight", &["emb_proj"]),
            HubTensor::vector("electra.embeddings_project.bias", &["emb_proj_bias"]),
            HubTensor::linear("generator_predictions.dense.weight", &["head_proj"]),
            HubTensor::vector("generator_predictions.dense.bias", &["head_proj_bias"]),
            HubTensor::vector("generator_predictions.LayerNorm.weight", &["head_norm"]),
            HubTensor::vector("generator_predictions.LayerNorm.bias", &["head_norm_bias"]),
            HubTensor::vector("generator_lm_head.bias", &["out_bias"]),
            HubTensor::linear("generator_lm_head.weight", &["out"]),
        ),
        head: "generator_lm_head.weight",
        ..BERT
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["embedding_size"], "128", "size of the rows of the embedding"),
    Key::read(&["hidden_size"], "256", HIDDEN),
    Key::read(&["num_attention_heads"], "4", HEADS),
    Key::read(&["intermediate_size"], "1024", FEED_FORWARD),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::nothing(
        &["summary_type", "summary_use_proj", "summary_activation", "summary_last_dropout"],
        "not of the language model",
    ),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = bert(fields)?;
    let size: u64 = fields.get("embedding_size")?;
    let head_layer = Some(HeadLayer { size, bias: true, activation: Activation::GeluErf });
    Ok(LlamaConfig { embedding_size: (size != base.hidden).then_some(size), head_layer, ..base }.into())
}
