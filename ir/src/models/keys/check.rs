//! Checks the keys of a file against the table: aliases become the canonical names, and a key that would change numbers
//! without being supported is rejected.

use super::{Done, FAMILIES, KEYS, Key, key};
use crate::diag::nearest;
use crate::models::config::{ConfigError, invalid};
use serde_json::{Map, Value};

/// The keys of a file of a family under the names that are read, and the keys that no family has.
///
/// # Errors
/// A key has a value that is not supported, another family's meaning, or two names; or it is a typing error.
pub(in crate::models) fn check(
    family: &'static str,
    file: &Map<String, Value>,
) -> Result<(Map<String, Value>, Vec<String>), ConfigError> {
    let (mut read, mut unknown) = (Map::new(), Vec::new());
    for (name, value) in file {
        let Some(row) = key(family, name) else {
            if !foreign(family, name, value)? {
                slip(family, name, file)?;
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

/// True if a key belongs to other families only. The class of this family does not read it, so values with an effect are
/// rejected.
fn foreign(family: &str, name: &str, value: &Value) -> Result<bool, ConfigError> {
    let rows = || KEYS.iter().filter(|row| row.names.contains(&name));
    if rows().next().is_none() {
        return Ok(false);
    }
    let off = |row: &Key| match row.done {
        Done::Nothing => true,
        Done::Only => row.absent().is_some_and(|absent| same(value, &absent)),
        Done::Read | Done::Alias(_) => false,
    };
    if matches!(value, Value::Null | Value::Bool(false)) || rows().any(off) {
        return Ok(true);
    }
    let class = FAMILIES.iter().find(|known| known.name == family).map_or("the rotary embedding", |known| known.class);
    let why = format!("{} is not supported: `{class}` does not read it", plain(value));
    Err(ConfigError::Unsupported { field: name.to_string(), why })
}

/// Rejects a key that resembles a supported one, whose value would be lost.
fn slip(family: &str, name: &str, file: &Map<String, Value>) -> Result<(), ConfigError> {
    let tells = |row: &&Key| row.families.contains(&family) && row.done != Done::Nothing;
    let names = KEYS.iter().filter(tells).flat_map(|row| row.names).copied();
    match nearest(name, names.filter(|known| !file.contains_key(*known))) {
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
