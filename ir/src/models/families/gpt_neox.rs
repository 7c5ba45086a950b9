//! GPT-NeoX: layer norms, biases, branches side by side.

use super::Family;
use super::common::{
    ACTIVATION, BIAS, CONTEXT, EVERY, FEED_FORWARD, HEADS, HIDDEN, LAYERS, NORM_EPS, ROTARY, THETA, TURNED, VOCABULARY,
};
use crate::models::config::{ConfigError, ModelConfig};
use crate::models::fields::Fields;
use crate::models::keys::{Key, Keys};
use crate::models::llama::LlamaConfig;
use crate::models::read::{Base, Rope, activation};

pub(super) const FAMILY: Family = Family {
    model_type: "gpt_neox",
    class: "GPTNeoXForCausalLM",
    keys: Keys { class: "GPTNeoXConfig", lists: &[KEYS, ROTARY, EVERY] },
    whole: None,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["hidden_act"], "\"gelu\"", ACTIVATION),
    Key::read(&["rotary_pct"], "0.25", TURNED),
    Key::read(&["attention_bias"], "true", BIAS),
    Key::nothing(&["pad_token_id"], "the embedding has no padding"),
    Key::read(&["vocab_size"], "50432", VOCABULARY),
    Key::read(&["hidden_size"], "6144", HIDDEN),
    Key::read(&["intermediate_size"], "24576", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "44", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["layer_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["rotary_emb_base"], "10000.0", THETA),
    Key::only(&["hidden_dropout"], "0.0", "nothing is dropped"),
    Key::nothing(&["classifier_dropout"], "not of the language model"),
    Key::read(&["use_parallel_residual"], "true", "attention and the feed-forward net read the same"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { theta: "rotary_emb_base", part: Some("rotary_pct"), ..Rope::USUAL };
    let base = Base { norm_eps: "layer_norm_eps", rope, ..Base::USUAL }.read(fields)?;
    let has_bias = fields.get("attention_bias")?;
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "hidden_act")?,
        layer_norm: true,
        parallel: fields.get("use_parallel_residual")?,
        qkv_bias: has_bias,
        out_bias: has_bias,
        net_bias: true,
        ..base
    }
    .into())
}
