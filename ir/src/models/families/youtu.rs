//! Youtu: latent attention with a feed-forward net.

use super::deepseek_v2;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "youtu",
    class: "YoutuForCausalLM",
    keys: Keys { class: "YoutuConfig", lists: &[KEYS, ONE_TYPE, FIXED_NET, deepseek_v2::DEEPSEEK, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        inner: &[NORMS, deepseek_v2::LATENT, NET],
        pairs: Pairs::Stated("rope_interleave"),
        turned: deepseek_v2::TURNING,
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "128256", VOCABULARY),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["intermediate_size"], "6144", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["num_key_value_heads"], "16", "the number of query heads"),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(
        &["initializer_range"],
        "null",
        "standard deviation of the initial matrices; those that write to the stream start smaller",
    ),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::nothing(&["embedding_initializer_range"], "the embedding starts as the other matrices do"),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(deepseek_v2::latent(fields)?.into())
}
