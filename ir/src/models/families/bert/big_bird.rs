//! BigBird: BERT that attends to parts of long sequences, and to all of those that are as short as its parts together.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "big_bird",
    class: "BigBirdForCausalLM",
    keys: Keys { class: "BigBirdConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "bert.",
        embedding: "bert.embeddings.word_embeddings.weight",
        outer: bert_outer!(
            "bert.",
            HubTensor::linear("bert.pooler.weight", &["pooler"]),
            HubTensor::vector("bert.pooler.bias", &["pooler_bias"]),
        ),
        ..BERT
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50358", VOCABULARY),
    Key::read(&["hidden_act"], "\"gelu_new\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "4096", POSITIONS),
    Key::read(
        &["attention_type"],
        "\"block_sparse\"",
        "original_full, or block_sparse of sequences that it attends to in full",
    ),
    Key::read(&["block_size"], "64", "tokens of a block: 5 and twice the random ones are the longest such sequence"),
    Key::read(&["num_random_blocks"], "3", "random blocks of a query"),
    Key::read(&["use_bias"], "true", QKV_BIAS),
    Key::read(&["rescale_embeddings"], "false", "embeddings are multiplied by the root of `hidden_size`"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = bert(fields)?;
    let longest = match fields.get::<String>("attention_type")?.as_str() {
        "original_full" => None,
        "block_sparse" => {
            let (size, random): (u64, u64) = (fields.get("block_size")?, fields.get("num_random_blocks")?);
            Some(random.saturating_mul(2).saturating_add(5).saturating_mul(size))
        }
        kind => {
            let why = format!("{kind} is not supported, only original_full and block_sparse");
            return Err(unsupported("attention_type", why));
        }
    };
    let embedding_scale = if fields.get("rescale_embeddings")? { EmbeddingScale::Root } else { EmbeddingScale::One };
    Ok(LlamaConfig { qkv_bias: fields.get("use_bias")?, embedding_scale, longest, pooler: true, ..base }.into())
}
