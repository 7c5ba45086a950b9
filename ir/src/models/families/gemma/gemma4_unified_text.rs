//! Gemma 4 whose one model reads text, images and sounds: heads of layers without a window have other sizes, and values are normed.

use super::prelude::*;
use serde_json::{Map, Value};

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "gemma4_unified_text",
    class: "Gemma4UnifiedForCausalLM",
    keys: Keys { class: "Gemma4UnifiedTextConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[Composite::of("gemma4_unified")],
    weights: Weights { inner: &[GAINS, QKV, ATTENTION, NET], ..USUAL },
    read,
};

pub(super) const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "262144", VOCABULARY),
    Key::read(&["hidden_size"], "2304", HIDDEN),
    Key::read(&["intermediate_size"], "9216", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "30", LAYERS),
    Key::read(&["num_attention_heads"], "8", HEADS),
    Key::read(
        &["num_key_value_heads"],
        "4",
        "key and value heads; of layers without a window unless these state others",
    ),
    Key::read(&["head_dim"], "256", "size of a head in layers with a window"),
    Key::read(&["global_head_dim"], "512", "the same in layers without one"),
    Key::read(&["num_global_key_value_heads"], "null", "key heads of layers without a window; null: as in the others"),
    Key::read(&[EACH], "null", "the same two numbers for each layer without a window, over the others"),
    Key::read(&["hidden_activation"], "\"gelu_pytorch_tanh\"", ACTIVATION),
    Key::nothing(&["hidden_act"], "the class reads `hidden_activation`"),
    Key::read(&["max_position_embeddings"], "262144", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-6", NORM_EPS),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["sliding_window"], "1024", WINDOW),
    Key::read(&["final_logit_softcapping"], "null", LOGIT_BOUND),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::read(&["attention_k_eq_v"], "false", "in layers without a window values are the products of keys"),
    Key::read(&["use_bidirectional_attention"], "\"vision\"", "vision or null: tokens of a text see no later ones"),
    Key::only(&["num_kv_shared_layers"], "0", "each layer has its own keys and values"),
    Key::nothing(&["use_double_wide_mlp"], "only layers without keys of their own have wider nets"),
    Key::read(&[THETA_KEY], "10000.0", "base of rotary frequencies, where an object of `rope_parameters` has none"),
    LAYER_TYPES,
];

/// The object of the sizes of heads by layer, which the class writes.
const EACH: &str = "per_layer_config";

/// Norms of both sides and of queries and keys, and the factor of a layer.
pub(super) const GAINS: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.weight", &["norm1"]),
    HubTensor::vector("post_attention_layernorm.weight", &["post_norm1"]),
    HubTensor::vector("pre_feedforward_layernorm.weight", &["norm2"]),
    HubTensor::vector("post_feedforward_layernorm.weight", &["post_norm2"]),
    HubTensor::vector("layer_scalar", &["layer_scale"]),
];

/// The layers between two without a window, and one more, where no types are stated.
const PATTERN: u32 = 6;

/// The rotations that the class has by default.
const ROTATIONS: &str = r#"{"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0}}"#;

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(fourth(fields)?.into())
}

/// The fields of a Gemma 4.
pub(super) fn fourth(fields: &Fields) -> Result<LlamaConfig, ConfigError> {
    let sizes = ModelSizes::read(fields)?;
    let (local_heads, local_size): (u64, u64) = (fields.get("num_key_value_heads")?, fields.get("head_dim")?);
    let keys_are_values = fields.get("attention_k_eq_v")?;
    let Full { size, kv_heads } = Full::read(fields, keys_are_values)?;
    let kv_heads = kv_heads.unwrap_or(local_heads);
    let rope = Rope { theta: THETA_KEY, local_theta: Some(THETA_KEY), default: Some(ROTATIONS), ..Rope::USUAL };
    let rotary = rope.read(fields, Head { size, is_latent: false })?;
    let base = biased(fields, Base::USUAL.read_with(fields, sizes, Heads { size, kv_heads, rotary })?)?;
    check_direction(fields)?;
    // The last layer has no window, whatever is stated.
    let last = base.layers - 1;
    let layers = Limited { is_needed: true, ..Limited::sliding(fields, base.layers)? };
    let window = layers.read(fields, |layer| (layer + 1).is_multiple_of(PATTERN) || layer == last)?;
    if window.is_some_and(|window| !window.full.contains(last)) {
        let why = "sliding_attention is not supported for the last layer, only full_attention".to_string();
        return Err(unsupported("layer_types", why));
    }
    let local_rotation = base.local_rotation.filter(|_| window.is_some());
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_activation")?,
        norms: Norms::Both,
        qk_norm: QkNorm::Heads,
        value_norm: true,
        keys_are_values,
        score_size: Some(1.0),
        logit_softcap: fields.optional("final_logit_softcapping")?,
        embedding_scale: EmbeddingScale::Root,
        local_kv_heads: Some(local_heads),
        local_head: Some(local_size),
        layer_scale: true,
        local_rotation,
        window,
        ..base
    })
}

/// The key of a base that no file counts, since each object of a rotation has one.
const THETA_KEY: &str = "rope_theta";

/// The heads of layers without a window.
struct Full {
    size: u64,
    kv_heads: Option<u64>,
}

impl Full {
    fn read(fields: &Fields, keys_are_values: bool) -> Result<Full, ConfigError> {
        let Some(each) = fields.object(EACH)? else {
            let kv_heads = if keys_are_values { fields.optional("num_global_key_value_heads")? } else { None };
            return Ok(Full { size: fields.get("global_head_dim")?, kv_heads });
        };
        let mut all = each.values();
        let first = all.next().and_then(Value::as_object).cloned().unwrap_or_default();
        if all.any(|other| other.as_object() != Some(&first)) {
            return Err(unsupported(EACH, "layers without a window that differ are not supported".to_string()));
        }
        if let Some(key) = first.keys().find(|key| !matches!(key.as_str(), "head_dim" | "num_key_value_heads")) {
            return Err(unsupported(EACH, format!("`{key}` is not supported, only head_dim and num_key_value_heads")));
        }
        let size = number(&first, "head_dim")?.map_or_else(|| fields.get("head_dim"), Ok)?;
        Ok(Full { size, kv_heads: number(&first, "num_key_value_heads")? })
    }
}

/// A number of a layer.
fn number(of: &Map<String, Value>, key: &str) -> Result<Option<u64>, ConfigError> {
    let stated = of.get(key).filter(|value| !value.is_null());
    stated.map_or(Ok(None), |value| match value.as_u64() {
        Some(number) => Ok(Some(number)),
        None => Err(invalid(EACH, format!("`{key}` must be a whole number, not {value}"))),
    })
}

/// Checks that no token of a text sees later ones.
fn check_direction(fields: &Fields) -> Result<(), ConfigError> {
    let key = "use_bidirectional_attention";
    match fields.optional::<String>(key)?.as_deref() {
        None | Some("vision") => Ok(()),
        Some(other) => Err(unsupported(key, format!("{other} is not supported, only vision and null"))),
    }
}
