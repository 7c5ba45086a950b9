//! Ministral 3: a Mistral whose queries grow with their place.

use super::prelude::*;
use serde_json::{Map, Value};

pub(super) const FAMILY: Family = Family {
    model_type: "ministral3",
    class: "Ministral3ForCausalLM",
    keys: Keys { class: "Ministral3Config", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[Composite::of("mistral3")],
    weights: USUAL,
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "131072", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "14336", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "34", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "262144", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["pad_token_id"], "11", PAD),
    Key::read(&["sliding_window"], "null", WINDOW),
    WHOLE_HEADS,
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["rope_theta"], "10000.0", THETA),
];

/// The rotary positions of a file that states none.
const YARN: &str = r#"{"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 16384, "beta_fast": 32.0,
    "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1}"#;

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { default: Some(YARN), ..Rope::USUAL };
    let base = Base { rope, ..Base::USUAL }.read(fields)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        temperature: Some(temperature(fields)?),
        window: windows::of_all(fields)?,
        ..base
    }
    .into())
}

/// The growth of queries, which the object of rotary positions states.
fn temperature(fields: &Fields) -> Result<Temperature, ConfigError> {
    let stated = fields.object("rope_parameters")?.or(fields.object("rope_scaling")?);
    let default: Map<String, Value> = serde_json::from_str(YARN).unwrap_or_default();
    let rope = stated.unwrap_or(&default);
    let every = rope.get("original_max_position_embeddings").and_then(Value::as_u64);
    let by = rope.get("llama_4_scaling_beta").and_then(Value::as_f64);
    let (Some(every), Some(by)) = (every, by) else {
        let why = "must state `llama_4_scaling_beta` and `original_max_position_embeddings`".to_string();
        return Err(invalid("rope_parameters", why));
    };
    Ok(Temperature { growth: Growth::Steps, every, by, ahead: 0, turned: true })
}
