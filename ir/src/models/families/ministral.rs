//! Ministral: a Mistral, some of whose layers have a window.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "ministral",
    class: "MinistralForCausalLM",
    keys: Keys { class: "MinistralConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: USUAL,
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
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "131072", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["sliding_window"], "4096", WINDOW),
    LAYER_TYPES,
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
    Key::only(&["attention_bias"], "false", NO_BIAS),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    let window = Limited::sliding(fields, base.layers)?.read(fields, |_| false)?;
    Ok(LlamaConfig { activation: activation(fields, "hidden_act")?, window, ..base }.into())
}
