//! Files of models that read images, too: their text model is one of a known family, and the only part that is read.

use super::error::{ConfigError, invalid};
use super::families::{FAMILIES, Family, Tied};
use super::keys::Done;
use serde_json::{Map, Value};

/// The key that both parts may have. The classes write their own default where a file says nothing, so that they may differ.
const TIED: &str = "tie_word_embeddings";

/// The file of a text model, and the keys that are left out.
pub type TextPart = (Map<String, Value>, Vec<String>);

/// The file of the text model in such a file, and the keys that are left out; none if it is no such file.
///
/// # Errors
/// It has no text model, or one of another family.
pub fn text_part(file: &Map<String, Value>) -> Result<Option<TextPart>, ConfigError> {
    let named = file.get("model_type").and_then(Value::as_str);
    let Some((family, tied)) = FAMILIES.iter().find_map(|family| of_whole(family, named?)) else { return Ok(None) };
    let model_type = family.model_type;
    let text = file.get("text_config").ok_or(ConfigError::Missing { field: "text_config" })?;
    let text = text.as_object().ok_or_else(|| invalid("text_config", "must be an object".to_string()))?;
    let mut text = text.clone();
    match text.get("model_type").and_then(Value::as_str) {
        Some(stated) if stated != model_type => {
            return Err(invalid("text_config", format!("has the `model_type` {stated}, not {model_type}")));
        }
        _ => text.insert("model_type".to_string(), model_type.into()),
    };
    if let Some(tied) = tied.part(file.get(TIED), text.get(TIED)).cloned() {
        text.insert(TIED.to_string(), tied);
    }
    let mut left_out: Vec<String> = file.keys().filter(|name| !is_read(family, name)).cloned().collect();
    left_out.iter_mut().for_each(|name| name.push_str(" (not of the text model)"));
    Ok(Some((text, left_out)))
}

/// True for a key of such a file that is read, or that means nothing.
fn is_read(family: &Family, name: &str) -> bool {
    let means_nothing = family.keys.row(name).is_some_and(|key| key.done == Done::Nothing);
    means_nothing || matches!(name, "model_type" | "text_config" | TIED)
}

/// A family, and what says whether the head of its text model is tied, if files of this `model_type` have a text model of it.
fn of_whole(family: &'static Family, model_type: &str) -> Option<(&'static Family, Tied)> {
    let whole = family.whole.filter(|whole| whole.model_type == model_type)?;
    Some((family, whole.tied))
}

impl Tied {
    /// The value that counts.
    fn part<'a>(self, whole: Option<&'a Value>, text: Option<&'a Value>) -> Option<&'a Value> {
        match self {
            Tied::Whole => whole.or(text),
            Tied::Text => text,
            Tied::Either => [whole, text].into_iter().flatten().max_by_key(|stated| **stated == Value::Bool(true)),
        }
    }
}
