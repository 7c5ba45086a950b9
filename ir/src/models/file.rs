//! The text of a `config.json`: the configuration that it states, read and checked.

use super::balance::Balance;
use super::composite::text_part;
use super::config::ModelConfig;
use super::error::{ConfigError, invalid};
use super::families::{self, Family};
use super::fields::Fields;
use super::vision::encoder_of;
use serde_json::{Map, Value};

/// Reads the text of a `config.json` as Hugging Face's `transformers` writes it; defaults are those of its classes.
///
/// # Errors
/// Everything in [`ConfigError`].
pub fn from_config(json: &str) -> Result<ModelConfig, ConfigError> {
    read_config(json).map(|(config, _)| config)
}

/// The family of a file: by its `model_type`, or where that is unknown by the class that `architectures` names.
///
/// # Errors
/// There is none.
pub fn family_of(file: &Map<String, Value>) -> Result<&'static Family, ConfigError> {
    let named = file.get("model_type").ok_or(ConfigError::Missing { field: "model_type" })?;
    let named = named.as_str().ok_or_else(|| invalid("model_type", format!("{named} is no string")))?;
    families::family(named).or_else(|unknown| {
        let classes = file.get("architectures").and_then(Value::as_array).into_iter().flatten();
        let mut families = classes.filter_map(Value::as_str).filter_map(families::family_of_class);
        families.next().ok_or(unknown)
    })
}

/// The same, and the keys that are ignored: those that mean nothing to any family, and those of parts that are not read. The encoder of a
/// model that reads images is read if the file says how many patches a sequence has.
///
/// # Errors
/// Everything in [`ConfigError`].
pub fn read_config(json: &str) -> Result<(ModelConfig, Vec<String>), ConfigError> {
    let value: Value = serde_json::from_str(json).map_err(|why| ConfigError::Json(why.to_string()))?;
    let file = value.as_object().ok_or_else(|| ConfigError::Json("it is another kind of value".to_string()))?;
    let (text, left_out) = text_part(file)?.unzip();
    let encoder = encoder_of(file)?;
    let file = text.as_ref().unwrap_or(file);
    let family = family_of(file)?;
    let fields = Fields::new(family.keys, &families::all_keys(), file)?;
    let read = (family.read)(&fields).and_then(|config| balanced(config, &fields)).and_then(ModelConfig::checked);
    let config = read.map_err(|why| fields.of_default(why))?;
    let mut unknown = fields.into_unknown();
    let Some(encoder) = encoder else {
        unknown.extend(left_out.into_iter().flatten());
        return Ok((config, unknown));
    };
    unknown.extend(encoder.unknown);
    Ok((config.with_images(encoder.vision)?, unknown))
}

/// The configuration with what the file says of the balance of experts.
fn balanced(mut config: ModelConfig, fields: &Fields) -> Result<ModelConfig, ConfigError> {
    if let Some(experts) = config.experts_mut() {
        experts.balance = Balance::read(fields)?;
    }
    Ok(config)
}
