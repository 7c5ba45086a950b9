//! Gemma 2: norms of both sides, bounded scores, windows in every second layer.

use super::llama::{LLAMA3_8B, PLAIN};
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "gemma2",
    class: "Gemma2ForCausalLM",
    keys: Keys { class: "Gemma2Config", lists: &[KEYS, GEMMA, ROTARY, EVERY] },
    wholes: &[],
    weights: GEMMA_WEIGHTS,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "256000", VOCABULARY),
    Key::read(&["max_position_embeddings"], "8192", CONTEXT),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attn_logit_softcapping"], "50.0", "bound of attention scores; null: none"),
    Key::read(&["final_logit_softcapping"], "30.0", LOGIT_BOUND),
    Key::only(&["use_bidirectional_attention"], "null", "a token sees no later ones"),
    Key::read(&["attention_bias"], "false", BIAS),
    WHOLE_HEADS,
    LAYER_TYPES,
];

/// The keys of Gemma 2 and 3.
pub(in crate::models::families) const GEMMA: &[Key] = &[
    Key::read(&["hidden_size"], "2304", HIDDEN),
    Key::read(&["intermediate_size"], "9216", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "26", LAYERS),
    Key::read(&["num_attention_heads"], "8", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["head_dim"], "256", HEAD_SIZE),
    Key::read(&["hidden_activation"], "\"gelu_pytorch_tanh\"", ACTIVATION),
    Key::nothing(&["hidden_act"], "the class reads `hidden_activation`"),
    Key::read(&["rms_norm_eps"], "1e-6", NORM_EPS),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["query_pre_attn_scalar"], "256", "scores are divided by its root"),
    Key::read(&["sliding_window"], "4096", WINDOW),
    Key::nothing(&["sliding_window_size", "cache_implementation"], UNREAD),
    Key::read(&["pad_token_id"], "0", PAD),
];

/// The names of Gemma 2 and 3. Files have gains relative to 1.
pub(in crate::models::families) const GEMMA_WEIGHTS: Weights = Weights {
    outer: &[
        HubTensor::table("model.embed_tokens.weight", &["emb"]),
        HubTensor::vector("model.norm.weight", &["final_norm"]).around_one(),
        HubTensor::linear("lm_head.weight", &["out"]),
    ],
    inner: &[GAINS, QKV, ATTENTION, NET],
    ..USUAL
};

/// The norms of both sides, and of queries and keys.
const GAINS: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.weight", &["norm1"]).around_one(),
    HubTensor::vector("post_attention_layernorm.weight", &["post_norm1"]).around_one(),
    HubTensor::vector("pre_feedforward_layernorm.weight", &["norm2"]).around_one(),
    HubTensor::vector("post_feedforward_layernorm.weight", &["post_norm2"]).around_one(),
    HubTensor::vector("self_attn.q_norm.weight", &["q_norm"]).around_one(),
    HubTensor::vector("self_attn.k_norm.weight", &["k_norm"]).around_one(),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = gemma(fields, Rope::USUAL)?;
    let layers = Limited::sliding(fields, base.layers)?;
    let window = layers.read(fields, |layer| (layer + 1).is_multiple_of(2))?;
    Ok(LlamaConfig { softcap: fields.optional("attn_logit_softcapping")?, window, ..base }.into())
}

/// Reads what Gemma 2 and 3 share.
pub(in crate::models::families) fn gemma(fields: &Fields, rope: Rope) -> Result<LlamaConfig, ConfigError> {
    let base = biased(fields, Base { rope, ..Base::USUAL }.read(fields)?)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_activation")?,
        norms: Norms::Both,
        score_size: Some(fields.get("query_pre_attn_scalar")?),
        logit_softcap: fields.optional("final_logit_softcapping")?,
        embedding_scale: EmbeddingScale::Root,
        ..base
    })
}

/// `config.json` of google/gemma-2-9b. Each second layer has no window.
pub(in crate::models::families) const GEMMA2_9B: LlamaConfig = LlamaConfig {
    vocabulary: 256_000,
    feed_forward: 14_336,
    activation: Activation::GeluTanh,
    layers: 42,
    heads: 16,
    kv_heads: 8,
    head: 256,
    norm_eps: 1e-6,
    norms: Norms::Both,
    rotation: PLAIN,
    softcap: Some(50.0),
    logit_softcap: Some(30.0),
    window: Some(Window { full: LayerSet::Every(2), ..Window::of_all(4096) }),
    pad: Some(0),
    tied: true,
    embedding_scale: EmbeddingScale::Root,
    hidden: 3584,
    ..LLAMA3_8B
};

/// Each of `config.json` of the model of its name in Google's space on the hub.
pub(in crate::models::families) const PRESETS: &[Preset] = &[
    Preset::llama(
        "gemma2-2b",
        "Gemma 2, 2.6B parameters: windows of 4096 in every second layer",
        8192,
        LlamaConfig { hidden: 2304, feed_forward: 9216, layers: 26, heads: 8, kv_heads: 4, ..GEMMA2_9B },
    ),
    Preset::llama("gemma2-9b", "Gemma 2, 9.2B parameters: windows of 4096 in every second layer", 8192, GEMMA2_9B),
    Preset::llama(
        "gemma2-27b",
        "Gemma 2, 27B parameters: windows of 4096 in every second layer",
        8192,
        LlamaConfig {
            hidden: 4608,
            feed_forward: 36_864,
            layers: 46,
            heads: 32,
            kv_heads: 16,
            head: 128,
            score_size: Some(144.0),
            ..GEMMA2_9B
        },
    ),
];
