//! Gemma: gains relative to 1, GELU gates, scaled embeddings.

use super::gemma2;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "gemma",
    class: "GemmaForCausalLM",
    keys: Keys { class: "GemmaConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { outer: gemma2::GEMMA_WEIGHTS.outer, inner: &[GAINS, QKV, ATTENTION, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "256000", VOCABULARY),
    Key::read(&["hidden_size"], "3072", HIDDEN),
    Key::read(&["intermediate_size"], "24576", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "28", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["num_key_value_heads"], "16", KV_HEADS),
    Key::read(&["head_dim"], "256", HEAD_SIZE),
    Key::read(&["hidden_act"], "\"gelu_pytorch_tanh\"", "gelu here means gelu_pytorch_tanh; else silu, relu or relu2"),
    Key::read(&["max_position_embeddings"], "8192", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::only(&["use_bidirectional_attention"], "null", "a token sees no later ones"),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
    Key::nothing(&["hidden_activation"], UNREAD),
];

/// Files have gains relative to 1.
const GAINS: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.weight", &["norm1"]).around_one(),
    HubTensor::vector("post_attention_layernorm.weight", &["norm2"]).around_one(),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    windows::one_type(fields)?;
    let stated = activation(fields, "hidden_act")?;
    // The first files say `gelu`, and the class takes it for the tanh form.
    let activation = if stated == Activation::GeluErf { Activation::GeluTanh } else { stated };
    Ok(LlamaConfig { activation, embedding_scale: EmbeddingScale::Root, ..base }.into())
}
