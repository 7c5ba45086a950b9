//! OLMo 2: norms of what branches give, and of queries and keys as a whole.

use super::llama::LLAMA3_8B;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "olmo2",
    class: "Olmo2ForCausalLM",
    keys: Keys { class: "Olmo2Config", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: WEIGHTS,
    read,
};

pub(super) const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50304", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "11008", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["pad_token_id"], "1", PAD),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["attention_bias"], "false", BIAS),
    WHOLE_HEADS,
];

pub(super) const WEIGHTS: Weights = Weights { inner: &[POST_NORMS, QKV, ATTENTION, NET], ..USUAL };

/// The norms of what branches give.
pub(super) const POST_NORMS: &[HubTensor] = &[
    HubTensor::vector("post_attention_layernorm.weight", &["post_norm1"]),
    HubTensor::vector("post_feedforward_layernorm.weight", &["post_norm2"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(olmo(fields, Rope::USUAL)?.into())
}

/// The fields of OLMo 2 and 3.
pub(super) fn olmo(fields: &Fields, rope: Rope) -> Result<LlamaConfig, ConfigError> {
    let base = biased(fields, Base { rope, ..Base::USUAL }.read(fields)?)?;
    let activation = activation(fields, "hidden_act")?;
    Ok(LlamaConfig { activation, norms: Norms::After, qk_norm: QkNorm::Whole, ..base })
}

/// `config.json` of allenai/OLMo-2-1124-7B.
pub(super) const OLMO2_7B: LlamaConfig = LlamaConfig {
    vocabulary: 100_352,
    feed_forward: 11_008,
    kv_heads: 32,
    norm_eps: 1e-6,
    norms: Norms::After,
    pad: Some(100_277),
    qk_norm: QkNorm::Whole,
    ..LLAMA3_8B
};

pub(super) const PRESETS: &[Preset] = &[
    Preset::llama(
        "olmo2-1b",
        "OLMo 2, 1.5B parameters",
        4096,
        LlamaConfig { hidden: 2048, feed_forward: 8192, layers: 16, heads: 16, kv_heads: 16, ..OLMO2_7B },
    ),
    Preset::llama("olmo2-7b", "OLMo 2, 7.3B parameters", 4096, OLMO2_7B),
    Preset::llama(
        "olmo2-13b",
        "OLMo 2, 14B parameters",
        4096,
        LlamaConfig { hidden: 5120, feed_forward: 13_824, layers: 40, heads: 40, kv_heads: 40, ..OLMO2_7B },
    ),
    Preset::llama(
        "olmo2-32b",
        "OLMo 2, 32B parameters",
        4096,
        LlamaConfig { hidden: 5120, feed_forward: 27_648, layers: 64, heads: 40, kv_heads: 8, ..OLMO2_7B },
    ),
];
