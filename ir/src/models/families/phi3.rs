//! Phi-3 and Phi-4: joined matrices, and LongRoPE.

use super::Family;
use super::common::{
    ACTIVATION, CONTEXT, EVERY, FEED_FORWARD, HEAD, HEADS, HIDDEN, KV_HEADS, LAYERS, NO_BIAS, NORM_EPS, PAD, ROTARY,
    THETA, TURNED, VOCABULARY, WINDOW,
};
use crate::models::config::{ConfigError, ModelConfig};
use crate::models::fields::Fields;
use crate::models::keys::{Key, Keys};
use crate::models::llama::LlamaConfig;
use crate::models::read::{Base, Kinds, Rope, activation, windows};

pub(super) const FAMILY: Family = Family {
    model_type: "phi3",
    class: "Phi3ForCausalLM",
    keys: Keys { class: "Phi3Config", lists: &[KEYS, ROTARY, EVERY] },
    whole: None,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["partial_rotary_factor"], "1.0", TURNED),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["vocab_size"], "32064", VOCABULARY),
    Key::read(&["hidden_size"], "3072", HIDDEN),
    Key::read(&["intermediate_size"], "8192", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["max_position_embeddings"], "4096", CONTEXT),
    Key::read(&["original_max_position_embeddings"], "4096", "context before scaling"),
    Key::read(&["rms_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["sliding_window"], "null", WINDOW),
    Key::only(&["resid_pdrop", "embd_pdrop"], "0.0", "nothing is dropped"),
    Key::read(&["pad_token_id"], "32000", PAD),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { part: Some("partial_rotary_factor"), kinds: Kinds::LongRope, ..Rope::USUAL };
    let base = Base { rope, ..Base::USUAL }.read(fields)?;
    let activation = activation(fields, "hidden_act")?;
    Ok(LlamaConfig { activation, window: windows::of_all(fields)?, ..base }.into())
}
