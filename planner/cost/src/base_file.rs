//! Files that begin from other files: `from = "fsdp-compile"` names one, and the file states only the differences.

use crate::preset_error::{PresetError, toml_error};
use ir::catalogue::Code;
use toml::{Table, Value};

/// File of a stack or of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BaseFile {
    /// Location, in one spelling for all spellings in `from`.
    pub place: String,
    /// Text of the file.
    pub text: String,
}

/// A file with all files that it begins from.
pub(crate) struct Joined {
    /// The tables merged key by key, without `from`; for other values the later file wins.
    pub(crate) table: Table,
    /// Texts, the file's own first.
    pub(crate) texts: Vec<String>,
}

/// Joins a file with those that it begins from; `open` returns the file named by `from`, and keys in `own` are not inherited.
/// Returns `None` if the file begins from no other.
///
/// # Errors
/// A text is not TOML. Files begin from each other. `open` fails.
pub(crate) fn joined<E: From<PresetError>>(
    text: &str,
    (code, own): (Code, &[&str]),
    open: &mut dyn FnMut(&str) -> Result<BaseFile, E>,
) -> Result<Option<Joined>, E> {
    let mut whole: Table = toml::from_str(text).map_err(|why| toml_error(code, &why))?;
    if !whole.contains_key("from") {
        return Ok(None);
    }
    let (mut names, mut places): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut texts = vec![text.to_string()];
    while let Some(from) = whole.remove("from") {
        let Value::String(name) = from else {
            let message = format!("`from` is {from}, expected the name of a preset or a path, in quotes");
            return Err(PresetError::wrong(code, message).into());
        };
        let BaseFile { place, text } = open(&name)?;
        names.push(name);
        if places.contains(&place) {
            let circle = format!("`from` goes round in a circle: {}", names.join(" begins from "));
            return Err(PresetError::wrong(code, circle).into());
        }
        places.push(place);
        let under = toml::from_str(&text).map_err(|why| toml_error(code, &why));
        let mut under: Table = under.map_err(|why| why.within(&names[names.len() - 1]))?;
        own.iter().for_each(|key| drop(under.remove(*key)));
        texts.push(text);
        whole = over(under, whole);
    }
    Ok(Some(Joined { table: whole, texts }))
}

/// First table, with the values of the second where it has any.
fn over(mut under: Table, above: Table) -> Table {
    for (key, value) in above {
        let value = match (under.remove(&key), value) {
            (Some(Value::Table(under)), Value::Table(above)) => Value::Table(over(under, above)),
            (_, value) => value,
        };
        under.insert(key, value);
    }
    under
}
