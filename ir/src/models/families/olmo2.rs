//! OLMo 2: norms of what branches give, and of queries and keys as a whole.

use super::Family;
use super::common::{
    ACTIVATION, BIAS, CONTEXT, EVERY, FEED_FORWARD, HEAD, HEADS, HIDDEN, KV_HEADS, LAYERS, NORM_EPS, PAD, ROTARY,
    THETA, VOCABULARY, WHOLE_HEADS,
};
use crate::models::attention::QkNorm;
use crate::models::config::{ConfigError, ModelConfig};
use crate::models::fields::Fields;
use crate::models::keys::{Key, Keys};
use crate::models::llama::{LlamaConfig, Norms};
use crate::models::read::{Base, activation};

pub(super) const FAMILY: Family = Family {
    model_type: "olmo2",
    class: "Olmo2ForCausalLM",
    keys: Keys { class: "Olmo2Config", lists: &[KEYS, ROTARY, EVERY] },
    whole: None,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["attention_bias"], "false", BIAS),
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
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    let has_bias = fields.get("attention_bias")?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        norms: Norms::After,
        qkv_bias: has_bias,
        out_bias: has_bias,
        qk_norm: QkNorm::Whole,
        ..base
    }
    .into())
}
