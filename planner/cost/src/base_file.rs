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

/// A file's table, or that of a file that it begins from.
pub(crate) struct Linked {
    /// Name in the `from` of the file above; `None` for the first file.
    name: Option<String>,
    /// Text of the file.
    pub(crate) text: String,
    /// Table without `from`, and without keys that are not inherited.
    table: Table,
}

impl Linked {
    /// Returns whether the table has a key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }
}

/// A file, then those that it begins from; `open` returns the file named by `from`, and keys in `own` are not inherited.
///
/// # Errors
/// A text is not TOML. Files begin from each other. `open` fails.
pub(crate) fn linked<E: From<PresetError>>(
    text: &str,
    code: Code,
    own: &[&str],
    open: &mut dyn FnMut(&str) -> Result<BaseFile, E>,
) -> Result<Vec<Linked>, E> {
    let table: Table = toml::from_str(text).map_err(|why| toml_error(code, &why))?;
    let mut files = vec![Linked { name: None, text: text.to_string(), table }];
    let (mut names, mut places): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    while let Some(from) = files.last_mut().and_then(|file| file.table.remove("from")) {
        let Value::String(name) = from else {
            let message = format!("`from` is {from}, expected the name of a preset or a path, in quotes");
            return Err(PresetError::wrong(code, message).into());
        };
        let BaseFile { place, text } = open(&name)?;
        names.push(name.clone());
        if places.contains(&place) {
            let circle = format!("`from` goes round in a circle: {}", names.join(" begins from "));
            return Err(PresetError::wrong(code, circle).into());
        }
        places.push(place);
        let table = toml::from_str(&text).map_err(|why| toml_error(code, &why).within(&name));
        let mut table: Table = table?;
        own.iter().for_each(|key| drop(table.remove(*key)));
        files.push(Linked { name: Some(name), text, table });
    }
    Ok(files)
}

/// Tables of files merged key by key; for other values the file nearer to the first one wins. `renew` brings a table to the present
/// form, with what it begins from.
///
/// # Errors
/// `renew` fails. The error has the name of the file, unless it is the first one.
pub(crate) fn merged(
    files: Vec<Linked>,
    renew: impl Fn(Table, &Table) -> Result<Table, PresetError>,
) -> Result<Table, PresetError> {
    files.into_iter().rev().try_fold(Table::new(), |base, Linked { name, table, .. }| {
        let table = renew(table, &base).map_err(|why| match name {
            Some(name) => why.within(&name),
            None => why,
        })?;
        Ok(over(base, table))
    })
}

/// First table, with the values of the second where it has any.
pub(crate) fn over(mut under: Table, above: Table) -> Table {
    for (key, value) in above {
        let value = match (under.remove(&key), value) {
            (Some(Value::Table(under)), Value::Table(above)) => Value::Table(over(under, above)),
            (_, value) => value,
        };
        under.insert(key, value);
    }
    under
}
