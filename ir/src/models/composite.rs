//! Files of models that read images, too: their text model is one of a known family, and the only part that is read.

use super::config::{ConfigError, invalid};
use super::keys::{self, Done};
use serde_json::{Map, Value};

/// The families of such files, and those of their text models.
pub const COMPOSITES: [(&str, &str); 3] =
    [("gemma3", "gemma3_text"), ("llama4", "llama4_text"), ("mistral3", "mistral")];

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
    let Some((_, family)) = COMPOSITES.iter().find(|(whole, _)| Some(*whole) == named) else { return Ok(None) };
    let text = file.get("text_config").ok_or(ConfigError::Missing { field: "text_config" })?;
    let text = text.as_object().ok_or_else(|| invalid("text_config", "must be an object".to_string()))?;
    let mut text = text.clone();
    match text.get("model_type").and_then(Value::as_str) {
        Some(stated) if stated != *family => {
            return Err(invalid("text_config", format!("has the `model_type` {stated}, not {family}")));
        }
        _ => text.insert("model_type".to_string(), (*family).into()),
    };
    if let Some(tied) = tied(family, file.get(TIED), text.get(TIED)).cloned() {
        text.insert(TIED.to_string(), tied);
    }
    let means_nothing = |name: &str| keys::key(family, name).is_some_and(|key| key.done == Done::Nothing);
    let is_read = |name: &str| matches!(name, "model_type" | "text_config" | TIED) || means_nothing(name);
    let left_out = file.keys().filter(|name| !is_read(name)).map(|name| format!("{name} (not of the text model)"));
    Ok(Some((text, left_out.collect())))
}

/// The value that counts where the whole file and its text model state whether the head is tied, as in `transformers` 5.24. It is
/// that of the whole file for Gemma 3, that of the text model for Llama 4, and for Mistral 3 the one that ties.
fn tied<'a>(family: &str, whole: Option<&'a Value>, text: Option<&'a Value>) -> Option<&'a Value> {
    match family {
        "gemma3_text" => whole.or(text),
        "llama4_text" => text,
        _ => [whole, text].into_iter().flatten().max_by_key(|stated| **stated == Value::Bool(true)),
    }
}
