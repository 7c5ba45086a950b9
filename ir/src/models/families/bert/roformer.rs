//! RoFormer: BERT whose positions turn queries and keys.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "roformer",
    class: "RoFormerForCausalLM",
    keys: Keys { class: "RoFormerConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "roformer.",
        embedding: "roformer.embeddings.word_embeddings.weight",
        outer: bert_outer!(
            "roformer.",
            HubTensor::table("roformer.encoder.embed_positions.weight", &["rotary_table"]),
            HubTensor::linear("roformer.embeddings_project.weight", &["emb_proj"]),
            HubTensor::vector("roformer.embeddings_project.bias", &["emb_proj_bias"]),
        ),
        pairs: Pairs::Adjacent,
        turned: &["wq", "wk", "bq", "bk"],
        ..BERT
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50000", VOCABULARY),
    Key::read(&["embedding_size"], "null", "size of the rows of the embedding; null: `hidden_size`"),
    Key::read(&["max_position_embeddings"], "1536", "positions of a table of waves, which follow from a rule"),
    Key::only(&["rotary_value"], "false", "values do not turn"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = bert(fields)?;
    let size = fields.optional("embedding_size")?.unwrap_or(base.hidden);
    let head_layer = base.head_layer.map(|layer| HeadLayer { size, ..layer });
    let rotary_table = Some(fields.get("max_position_embeddings")?);
    Ok(LlamaConfig {
        embedding_size: (size != base.hidden).then_some(size),
        head_layer,
        learned: None,
        rotary_table,
        nope: LayerSet::None,
        ..base
    }
    .into())
}
