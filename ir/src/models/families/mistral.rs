//! Mistral: a window of all layers.

use super::common::{
    CONTEXT, EVERY, FEED_FORWARD, FIXED_NET, HEAD, HEADS, HIDDEN, KV_HEADS, LATENT_EPS, LAYERS, NO_BIAS, ONE_TYPE,
    ROTARY, THETA, VOCABULARY, WHOLE_HEADS, WINDOW,
};
use super::{Composite, Family, Tied};
use crate::models::config::{ConfigError, ModelConfig};
use crate::models::fields::Fields;
use crate::models::keys::{Key, Keys};
use crate::models::llama::LlamaConfig;
use crate::models::read::{Base, windows};

pub(super) const FAMILY: Family = Family {
    model_type: "mistral",
    class: "MistralForCausalLM",
    keys: Keys { class: "MistralConfig", lists: &[KEYS, ONE_TYPE, FIXED_NET, ROTARY, EVERY] },
    whole: Some(Composite { model_type: "mistral3", tied: Tied::Either }),
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "14336", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-6", LATENT_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["sliding_window"], "4096", WINDOW),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    Ok(LlamaConfig { window: windows::of_all(fields)?, ..base }.into())
}
