//! GLM-5: DeepSeek-V3.2 with other sizes, and layers that take the choice of keys of an earlier one.

use super::deepseek_v2;
use super::deepseek_v3;
use super::deepseek_v32::{self, INDEXED};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "glm_moe_dsa",
    class: "GlmMoeDsaForCausalLM",
    keys: Keys {
        class: "GlmMoeDsaConfig",
        lists: &[KEYS, INDEXED, deepseek_v3::KEYS, FIXED_NET, ROUTED, FURTHER, deepseek_v2::DEEPSEEK, ROTARY, EVERY],
    },
    wholes: &[],
    weights: Weights { inner: deepseek_v32::FAMILY.weights.inner, turned: TURNING, ..deepseek_v32::FAMILY.weights },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "154880", VOCABULARY),
    Key::read(&["hidden_size"], "6144", HIDDEN),
    Key::read(&["intermediate_size"], "12288", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "78", LAYERS),
    Key::read(&["num_attention_heads"], "64", HEADS),
    Key::read(&["q_lora_rank"], "2048", "size of the vector that queries come from"),
    Key::read(&["v_head_dim"], "256", "size of values"),
    Key::read(&["qk_nope_head_dim"], "192", "size of the part of a head without positions"),
    Key::read(&["n_group"], "1", GROUPS),
    Key::read(&["topk_group"], "1", OPEN_GROUPS),
    Key::read(&["max_position_embeddings"], "202752", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-5", LATENT_EPS),
    Key::read(&["mlp_layer_types"], "null", SPARSE_LAYERS),
    Key::nothing(&["num_key_value_heads"], "heads share one key"),
    Key::alias(&["num_experts"], "n_routed_experts"),
    Key::read(
        &[TYPES],
        "null",
        "full or shared, by layer: with an indexer, or with the choice of the last layer that has one",
    ),
    Key::read(&["index_topk_pattern"], "null", "the same as letters F and S, where `indexer_types` is absent"),
    Key::read(&["index_topk_freq"], "1", "where both are absent: layers from one indexer to the next"),
    Key::read(&["index_skip_topk_offset"], "2", "layers in front that all have an indexer, and one more"),
];

/// Parameters that positions turn: those of indexers have pairs of neighbours, too.
const TURNING: &[&str] = &["wqr", "wkr", "wiq", "wik", "ik_norm", "ik_norm_bias"];

const TYPES: &str = "indexer_types";

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let layers = fields.layers("num_hidden_layers")?;
    Ok(deepseek_v32::indexed(fields, shared(fields, layers)?)?.into())
}

/// The layers without an indexer.
fn shared(fields: &Fields, layers: u32) -> Result<LayerSet, ConfigError> {
    let listed = match fields.optional(TYPES)? {
        Some(types) => Some((TYPES, types)),
        None => pattern(fields)?.map(|types| ("index_topk_pattern", types)),
    };
    let Some((key, types)) = listed else {
        let (every, offset): (u32, u32) = (fields.get("index_topk_freq")?, fields.get("index_skip_topk_offset")?);
        let key = "index_topk_freq";
        return set(layers, |layer| !(layer + 1).saturating_sub(offset).is_multiple_of(every.max(1)), key);
    };
    if types.len() != layers as usize {
        let why = format!("`{key}` has {} types, but `num_hidden_layers` is {layers}", types.len());
        return Err(ConfigError::Contradiction(why));
    }
    if let Some(kind) = types.iter().find(|kind| !matches!(kind.as_str(), "full" | "shared")) {
        return Err(unsupported(key, format!("{kind} is not supported, only full and shared")));
    }
    set(layers, |layer| types[layer as usize] == "shared", key)
}

/// The types that letters stand for.
fn pattern(fields: &Fields) -> Result<Option<Vec<String>>, ConfigError> {
    let Some(letters): Option<String> = fields.optional("index_topk_pattern")? else { return Ok(None) };
    let kinds = letters.chars().map(|letter| match letter {
        'F' => "full".to_string(),
        'S' => "shared".to_string(),
        other => other.to_string(),
    });
    Ok(Some(kinds.collect()))
}

fn set(layers: u32, is_shared: impl Fn(u32) -> bool, key: &str) -> Result<LayerSet, ConfigError> {
    LayerSet::of(layers, is_shared)
        .ok_or_else(|| unsupported(key, "of more than 128 layers they must follow a rule".to_string()))
}
