//! BERT for generation: no kinds of tokens, and no layer in front of the head.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "bert-generation",
    class: "BertGenerationDecoder",
    keys: Keys { class: "BertGenerationConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "bert.",
        embedding: "bert.embeddings.word_embeddings.weight",
        outer: outer!("bert.", HubTensor::vector("lm_head.bias", &["out_bias"])),
        ..ROBERTA
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50358", VOCABULARY),
    Key::read(&["hidden_size"], "1024", HIDDEN),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["intermediate_size"], "4096", FEED_FORWARD),
    Key::read(&["type_vocab_size"], "", UNREAD),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(shared(fields)?.into())
}
