//! Gemma 3, its text models: layers with a window have frequencies of their own.

use super::common::{BIAS, CONTEXT, EVERY, LAYER_TYPES, LOGIT_BOUND, ROTARY, UNREAD, VOCABULARY, WHOLE_HEADS};
use super::{Composite, Family, Tied, gemma2};
use crate::models::attention::QkNorm;
use crate::models::config::{ConfigError, ModelConfig};
use crate::models::fields::Fields;
use crate::models::keys::{Key, Keys};
use crate::models::llama::LlamaConfig;
use crate::models::read::Rope;
use crate::models::read::windows::{Limit, Limited};

pub(super) const FAMILY: Family = Family {
    model_type: "gemma3_text",
    class: "Gemma3ForCausalLM",
    keys: Keys { class: "Gemma3TextConfig", lists: &[KEYS, gemma2::GEMMA, ROTARY, EVERY] },
    whole: Some(Composite { model_type: "gemma3", tied: Tied::Whole }),
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["vocab_size"], "262208", VOCABULARY),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rope_theta"], "1000000.0", "base of the rotary frequencies of layers without a window"),
    Key::read(&["rope_local_base_freq"], "10000.0", "the same of layers with a window"),
    Key::only(&["attn_logit_softcapping"], "null", UNREAD),
    Key::read(&["final_logit_softcapping"], "null", LOGIT_BOUND),
    Key::read(&["sliding_window_pattern"], "6", "without `layer_types`, one layer in this number has no window"),
    Key::alias(&["_sliding_window_pattern"], "sliding_window_pattern"),
    Key::only(&["use_bidirectional_attention"], "false", "a token sees no later ones"),
    WHOLE_HEADS,
    LAYER_TYPES,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = gemma2::gemma(fields, Rope { local_theta: Some("rope_local_base_freq"), ..Rope::USUAL })?;
    let layers = Limited {
        layers: base.layers,
        limit: Limit::Sliding,
        tokens: fields.optional("sliding_window")?,
        is_needed: true,
    };
    let pattern: u32 = fields.get("sliding_window_pattern")?;
    let window = layers.read(fields, |layer| pattern == 0 || (layer + 1).is_multiple_of(pattern))?;
    let local_rotation = base.local_rotation.filter(|_| window.is_some());
    Ok(LlamaConfig { local_rotation, window, qk_norm: QkNorm::Heads, ..base }.into())
}
