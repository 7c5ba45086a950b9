//! The decoder of Marian: norms of sums, and a table of waves of positions.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "marian",
    class: "MarianForCausalLM",
    keys: Keys { class: "MarianConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: DECODER,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "58101", VOCABULARY),
    Key::read(&["decoder_vocab_size"], "null", "the same; null: `vocab_size`, and no other is supported"),
    Key::read(&["pad_token_id"], "58100", PAD),
    Key::nothing(&["share_encoder_decoder_embeddings"], "of the encoder, which is no part of the decoder"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = waved(fields)?;
    if let Some(size) = fields.optional("decoder_vocab_size")?.filter(|size: &u64| *size != base.vocabulary) {
        let why = format!("{size} is not supported, only `vocab_size`, {}", base.vocabulary);
        return Err(unsupported("decoder_vocab_size", why));
    }
    Ok(base.into())
}
