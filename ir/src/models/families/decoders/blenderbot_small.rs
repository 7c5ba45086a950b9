//! The decoder of BlenderbotSmall: the rows of tokens are normed before those of positions are added.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "blenderbot-small",
    class: "BlenderbotSmallForCausalLM",
    keys: Keys { class: "BlenderbotSmallConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: DECODER,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["d_model"], "512", HIDDEN),
    Key::read(&["decoder_layers"], "8", LAYERS),
    Key::read(&["decoder_ffn_dim"], "2048", FEED_FORWARD),
    Key::read(&["max_position_embeddings"], "512", POSITIONS),
    Key::read(&["pad_token_id"], "0", PAD),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let learned = Learned { positions: fields.get("max_position_embeddings")?, unread: 0 };
    Ok(LlamaConfig { embedding_norm: EmbeddingNorm::Tokens, ..decoder(fields, learned)? }.into())
}
