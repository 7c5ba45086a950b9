//! The text model of Moshi: Llama with joined matrices, and one more token that is read and never predicted.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "moshi",
    class: "MoshiForCausalLM",
    keys: Keys { class: "MoshiConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[JOINED, NORMS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["ffn_dim"], "22528", "twice the size between the matrices of the feed-forward net"),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["max_position_embeddings"], "3000", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-08", NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::only(&["tie_word_embeddings"], "false", "the head has fewer rows than the embedding"),
    Key::nothing(
        &["audio_vocab_size", "num_codebooks", "audio_encoder_config", "depth_decoder_config"],
        "what the text model has no part of",
    ),
    Key::read(&["sliding_window"], "3000", UNREAD),
    WHOLE_HEADS,
];

const JOINED: &[HubTensor] = &[
    HubTensor::linear("self_attn.q_proj.linear.weight", &["wq"]),
    HubTensor::linear("self_attn.k_proj.linear.weight", &["wk"]),
    HubTensor::linear("self_attn.v_proj.linear.weight", &["wv"]),
    HubTensor::linear("self_attn.o_proj.linear.weight", &["wo"]).of_inputs(3),
    HubTensor::linear("mlp.fc1.weight", &["gate", "up"]),
    HubTensor::linear("mlp.fc2.weight", &["down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "ffn_dim", ..Base::USUAL }.read(fields)?;
    if !base.feed_forward.is_multiple_of(2) {
        return Err(invalid("ffn_dim", format!("{} is odd; a gate takes a half of it", base.feed_forward)));
    }
    let activation = activation(fields, "hidden_act")?;
    Ok(LlamaConfig { unpredicted: 1, feed_forward: base.feed_forward / 2, activation, ..base }.into())
}
