//! The decoder of BigBird-Pegasus: products of attention without biases, and a head that is not tied.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "bigbird_pegasus",
    class: "BigBirdPegasusForCausalLM",
    keys: Keys { class: "BigBirdPegasusConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights { outer: OUTER, ..DECODER },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "96103", VOCABULARY),
    Key::read(&["decoder_layers"], "16", LAYERS),
    Key::read(&["activation_function"], "\"gelu_new\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "4096", POSITIONS),
    Key::read(&["scale_embedding"], "true", "embeddings are multiplied by the root of the stream's size"),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["use_bias"], "false", BIAS),
    Key::alias(&["attention_probs_dropout_prob"], "attention_dropout"),
    Key::read(&["tie_word_embeddings"], "true", "the class ties nothing, whatever it states"),
    Key::nothing(
        &["attention_type", "block_size", "num_random_blocks"],
        "of the encoder, which is no part of the decoder",
    ),
];

/// The last norm has the name that the norm of embeddings has in BART.
const OUTER: &[HubTensor] = &[
    HubTensor::table("model.decoder.embed_tokens.weight", &["emb"]),
    HubTensor::table("model.decoder.embed_positions.weight", &["wpe"]),
    HubTensor::vector("model.decoder.layernorm_embedding.weight", &["final_norm"]),
    HubTensor::vector("model.decoder.layernorm_embedding.bias", &["final_norm_bias"]),
    HubTensor::linear("lm_head.weight", &["out"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let learned = Learned { positions: fields.get("max_position_embeddings")?, unread: 0 };
    let has_bias = fields.get("use_bias")?;
    let base = normed_before(decoder(fields, learned)?);
    Ok(LlamaConfig { tied: false, qkv_bias: has_bias, out_bias: has_bias, ..base }.into())
}
