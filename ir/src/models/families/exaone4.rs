//! EXAONE 4: norms of what branches give, and of heads; windows, and no positions in layers without one.

use super::olmo2;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "exaone4",
    class: "Exaone4ForCausalLM",
    keys: Keys { class: "Exaone4Config", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: olmo2::WEIGHTS,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "102400", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "16384", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "32", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["sliding_window"], "4096", WINDOW),
    Key::read(
        &["sliding_window_pattern"],
        "4",
        "without `layer_types`, one layer in this number has no window and no positions",
    ),
    LAYER_TYPES,
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
    Key::only(&["attention_bias"], "false", NO_BIAS),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(LlamaConfig { norms: Norms::After, ..exaone(fields)? }.into())
}

/// Reads what EXAONE 4 and its mixture share: where there is a window, layers without it have no positions.
pub(super) fn exaone(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    let base = Base::USUAL.read(fields)?;
    let pattern: u32 = fields.optional("sliding_window_pattern")?.unwrap_or(0);
    let layers = Limited::sliding(fields, base.layers)?;
    let has_window = layers.tokens.is_some();
    let window = layers.read(fields, |layer| pattern != 0 && (layer + 1).is_multiple_of(pattern))?;
    let nope =
        if has_window { window.map_or(LayerSet::First(base.layers), |window| window.full) } else { LayerSet::None };
    Ok(LlamaConfig { activation: activation(fields, "hidden_act")?, nope, window, qk_norm: QkNorm::Heads, ..base })
}
