//! The decoder of PLBART: BART for programs.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "plbart",
    class: "PLBartForCausalLM",
    keys: Keys { class: "PLBartConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: DECODER,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50005", VOCABULARY),
    Key::read(&["d_model"], "768", HIDDEN),
    Key::read(&["decoder_layers"], "6", LAYERS),
    Key::read(&["decoder_attention_heads"], "12", HEADS),
    Key::read(&["decoder_ffn_dim"], "3072", FEED_FORWARD),
    Key::read(&["attention_dropout"], "0.1", DROPOUT),
    Key::read(&["scale_embedding"], "true", "embeddings are multiplied by the root of the stream's size"),
    Key::alias(&["initializer_range"], "init_std"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(bart(fields)?.into())
}
