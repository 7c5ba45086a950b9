//! The decoder of Blenderbot: norms of what branches read, and all rows of positions are read.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "blenderbot",
    class: "BlenderbotForCausalLM",
    keys: Keys { class: "BlenderbotConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: DECODER,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "8008", VOCABULARY),
    Key::read(&["d_model"], "2560", HIDDEN),
    Key::read(&["decoder_layers"], "24", LAYERS),
    Key::read(&["decoder_attention_heads"], "32", HEADS),
    Key::read(&["decoder_ffn_dim"], "10240", FEED_FORWARD),
    Key::read(&["max_position_embeddings"], "128", POSITIONS),
    Key::read(&["pad_token_id"], "0", PAD),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let learned = Learned { positions: fields.get("max_position_embeddings")?, unread: 0 };
    Ok(normed_before(decoder(fields, learned)?).into())
}
