//! The text model of Cohere's Compass: Cohere 2 whose types of layers each have positions of their own, or none.

use super::cohere;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "cohere_compass_text",
    class: "CohereCompassForCausalLM",
    keys: Keys { class: "CohereCompassTextConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[cohere::LAYER, QKV, ATTENTION, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "256000", VOCABULARY),
    Key::read(&["hidden_size"], "8192", HIDDEN),
    Key::read(&["intermediate_size"], "22528", FEED_FORWARD),
    Key::read(&["logit_scale"], "null", "factor of logits; null: 1"),
    Key::read(&["num_hidden_layers"], "40", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "8192", CONTEXT),
    Key::read(&["layer_norm_eps"], "1e-05", LAYER_NORM_EPS),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["sliding_window"], "4096", WINDOW),
    LAYER_TYPES,
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::nothing(&["pooling"], "how sequences are classified"),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { local_theta: Some("rope_theta"), ..Rope::USUAL };
    let base = cohere::parallel(fields, rope)?;
    let layers = Limited { is_needed: true, ..Limited::sliding(fields, base.layers)? };
    let window = layers.read(fields, |_| true)?;
    let full = window.map_or(LayerSet::First(base.layers), |window| window.full);
    let full_turn = positions::turn(fields, "full_attention", full.count(base.layers) > 0)?;
    let local_turn = positions::turn(fields, "sliding_attention", window.is_some())?;
    let nope = LayerSet::of(base.layers, |layer| if full.contains(layer) { !full_turn } else { !local_turn });
    let nope =
        nope.ok_or_else(|| unsupported("layer_types", "of more than 128 layers they must follow a rule".to_string()))?;
    let logit_scale = fields.optional("logit_scale")?.unwrap_or(1.0);
    Ok(LlamaConfig { logit_scale, window, nope, ..base }.into())
}
