//! Files of models that read images, too: their text model is one of a known family, and the only part that is read.

use super::error::{ConfigError, invalid};
use super::families::{Composite, FAMILIES, Family, Tied};
use super::keys::{Done, Key};
use serde_json::{Map, Value};

/// The key of the text model.
pub(super) const TEXT: &str = "text_config";

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
    let wholes: Vec<(&Family, &Composite)> = FAMILIES.iter().filter_map(|family| of_whole(family, named?)).collect();
    let Some(&(first, _)) = wholes.first() else { return Ok(None) };
    let mut text = text_of(file)?;
    let stated = text.get("model_type").and_then(Value::as_str).filter(|stated| Some(*stated) != named);
    let found = wholes.iter().find(|(family, whole)| {
        stated.is_none_or(|stated| stated == family.model_type || Some(stated) == whole.text_type)
    });
    let Some((family, whole)) = found else {
        let (stated, known) = (stated.unwrap_or_default(), first.model_type);
        return Err(invalid("text_config", format!("has the `model_type` {stated}, not {known}")));
    };
    text.insert("model_type".to_string(), family.model_type.into());
    let defaults: Map<String, Value> = serde_json::from_str(whole.defaults).unwrap_or_default();
    for (key, value) in defaults {
        // A value under another name counts, too.
        let has_alias = text.keys().any(|name| family.keys.row(name).is_some_and(|row| is_alias(row, &key)));
        if !has_alias {
            text.entry(key).or_insert(value);
        }
    }
    if let Some(tied) = whole.tied.part(file.get(TIED), text.get(TIED)).cloned() {
        text.insert(TIED.to_string(), tied);
    }
    let is_flat = !file.contains_key(TEXT);
    let mut left_out: Vec<String> = file.keys().filter(|name| !is_read(family, name, is_flat)).cloned().collect();
    if is_flat {
        text.retain(|name, _| !left_out.contains(name));
    }
    left_out.iter_mut().for_each(|name| name.push_str(" (not of the text model)"));
    Ok(Some((text, left_out)))
}

/// True for the row of another name of a key.
fn is_alias(row: &Key, key: &str) -> bool {
    matches!(row.done, Done::Alias(of) if of == key)
}

/// The keys of the text model. The first files of some have them next to those of the whole.
fn text_of(file: &Map<String, Value>) -> Result<Map<String, Value>, ConfigError> {
    match file.get(TEXT) {
        Some(text) => text.as_object().cloned().ok_or_else(|| invalid(TEXT, "must be an object".to_string())),
        None if file.contains_key("hidden_size") => Ok(file.clone()),
        None => Err(ConfigError::Missing { field: TEXT }),
    }
}

/// True for a key of such a file that is read, or that means nothing.
fn is_read(family: &Family, name: &str, is_flat: bool) -> bool {
    let is_known = family.keys.row(name).is_some_and(|key| is_flat || key.done == Done::Nothing);
    is_known || matches!(name, "model_type" | TEXT | TIED)
}

/// A family, and the row of this `model_type`, if files of it have a text model of the family.
fn of_whole(family: &'static Family, model_type: &str) -> Option<(&'static Family, &'static Composite)> {
    Some((family, family.wholes.iter().find(|whole| whole.model_type == model_type)?))
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
