//! Checks the keys of a file against the table: aliases become the canonical names, and a key that would change numbers
//! without being supported is rejected.

use super::{Done, Key, Keys};
use crate::diag::nearest;
use crate::models::error::{ConfigError, invalid};
use serde_json::{Map, Value};

/// The keys of a file under the names that are read, and the keys that no class has; `all` are those of all classes.
///
/// # Errors
/// A key has a value that is not supported, another class's meaning, or two names; or it is a typing error.
pub(in crate::models) fn check(
    keys: Keys,
    all: &[Keys],
    file: &Map<String, Value>,
) -> Result<(Map<String, Value>, Vec<String>), ConfigError> {
    let (mut read, mut unknown) = (Map::new(), Vec::new());
    for (name, value) in file {
        let Some(row) = keys.row(name) else {
            if !foreign(keys, all, name, value)? {
                slip(keys, name, file)?;
                unknown.push(name.clone());
            }
            continue;
        };
        match row.done {
            Done::Read => one(&mut read, name, name, value)?,
            Done::Alias(of) => one(&mut read, of, name, value)?,
            Done::Only => only(row, name, value)?,
            Done::Nothing => {}
        }
    }
    Ok((read, unknown))
}

/// Notes a value under the name that is read, which must have no other one.
fn one(read: &mut Map<String, Value>, name: &str, stated: &str, value: &Value) -> Result<(), ConfigError> {
    match read.insert(name.to_string(), value.clone()) {
        Some(other) if other != *value => {
            let why = format!("is {value} under the name `{stated}`, but {other} elsewhere in the file");
            Err(invalid(name, why))
        }
        _ => Ok(()),
    }
}

fn only(row: &'static Key, name: &str, value: &Value) -> Result<(), ConfigError> {
    let absent = row.absent().unwrap_or(Value::Null);
    if value.is_null() || same(value, &absent) {
        return Ok(());
    }
    let why = format!("{} is not supported, only {}: {}", plain(value), plain(&absent), row.about);
    Err(ConfigError::Unsupported { field: name.to_string(), why })
}

/// True if a key belongs to other classes only. The class of this file does not read it, so values with an effect are
/// rejected.
fn foreign(keys: Keys, all: &[Keys], name: &str, value: &Value) -> Result<bool, ConfigError> {
    let rows: Vec<&Key> = all.iter().filter_map(|keys| keys.row(name)).collect();
    if rows.is_empty() {
        return Ok(false);
    }
    // A class on which the key has no effect says nothing about others, of which one reads it.
    let is_read = rows.iter().any(|row| row.done == Done::Read);
    let is_off = rows.iter().any(|row| is_off(row, value) && !(is_read && row.done == Done::Nothing));
    if matches!(value, Value::Null | Value::Bool(false)) || is_off {
        return Ok(true);
    }
    let why = format!("{} is not supported: `{}` does not read it", plain(value), keys.class);
    Err(ConfigError::Unsupported { field: name.to_string(), why })
}

/// True if a value has no effect on the class of a row.
fn is_off(row: &Key, value: &Value) -> bool {
    match row.done {
        Done::Nothing => true,
        Done::Only => row.absent().is_some_and(|absent| same(value, &absent)),
        Done::Read | Done::Alias(_) => false,
    }
}

/// Rejects a key that resembles a supported one, whose value would be lost.
fn slip(keys: Keys, name: &str, file: &Map<String, Value>) -> Result<(), ConfigError> {
    let known = keys.rows().filter(|(known, row)| row.done != Done::Nothing && !file.contains_key(*known));
    match nearest(name, known.map(|(known, _)| known)) {
        None => Ok(()),
        Some(near) => {
            let why = format!("there is no such key; did you mean `{near}`?");
            Err(ConfigError::Unsupported { field: name.to_string(), why })
        }
    }
}

/// True if two values are equal; 1 equals 1.0.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// A value without the quotes of a string.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}
