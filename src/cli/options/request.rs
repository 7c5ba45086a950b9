//! Builds a request from a file and flags: both are maps from field to value, and flags override the file.

use crate::error::Error;
use compiler::text_files::read_settings;
use ir::catalogue::Code;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::path::Path;

/// Fields by name.
pub(in crate::cli) type Fields = Map<String, Value>;

/// Reads the fields of a JSON request (`-`: standard input), which must be fields of `R`.
pub(in crate::cli) fn from_json<R: DeserializeOwned>(path: &Path) -> Result<Fields, Error> {
    let text = read_settings(path)?;
    let malformed = |why: serde_json::Error| malformed(path, &why.to_string());
    serde_json::from_str::<R>(&text).map_err(malformed)?;
    serde_json::from_str(&text).map(renamed).map_err(malformed)
}

/// Reads the fields of a `run.toml`, which must be fields of `R`.
#[cfg(feature = "train")]
pub(in crate::cli) fn from_toml<R: DeserializeOwned>(path: &Path) -> Result<Fields, Error> {
    let text = read_settings(path)?;
    let malformed = |why: toml::de::Error| malformed(path, &why.to_string());
    toml::from_str::<R>(&text).map_err(malformed)?;
    let fields: Fields = toml::from_str(&text).map_err(malformed)?;
    // TOML allows `nan` and `inf`; no field does.
    match fields.iter().find(|(_, value)| value.is_null()) {
        Some((name, _)) => Err(self::malformed(path, &format!("`{name}` must be a finite number"))),
        None => Ok(renamed(fields)),
    }
}

/// The fields under the names that they have now: requests of earlier versions call the configuration `mesh` or `layout`,
/// and its `rank_order` `order`.
fn renamed(mut fields: Fields) -> Fields {
    for old in ["mesh", "layout"] {
        if let Some(Value::String(text)) = fields.remove(old) {
            fields.insert("parallel".into(), text.replace(",order=", ",rank_order=").into());
        }
    }
    fields
}

/// The request of a subcommand: the flags over the fields of a JSON file. Without a file, what is `missing` among the flags is
/// what the subcommand cannot do without.
pub(in crate::cli) fn asked<R: DeserializeOwned>(
    file: Option<&Path>,
    missing: Option<&str>,
    flags: &impl Serialize,
) -> Result<R, Error> {
    read(asked_fields::<R>(file, missing, flags)?)
}

/// The fields of [`asked`].
pub(in crate::cli) fn asked_fields<R: DeserializeOwned>(
    file: Option<&Path>,
    missing: Option<&str>,
    flags: &impl Serialize,
) -> Result<Fields, Error> {
    let fields = match (file, missing) {
        (Some(path), _) => from_json::<R>(path)?,
        (None, Some(missing)) => return Err(Error::Usage(missing.into())),
        (None, None) => Fields::new(),
    };
    overridden(fields, flags)
}

/// Overrides fields by flags and reads the request.
pub(in crate::cli) fn resolve<R: DeserializeOwned>(fields: Fields, flags: &impl Serialize) -> Result<R, Error> {
    read(overridden(fields, flags)?)
}

/// Overrides fields by flags. A flag that is not given is null and keeps the field.
fn overridden(mut fields: Fields, flags: &impl Serialize) -> Result<Fields, Error> {
    let flags = serde_json::to_value(flags).map_err(|_| {
        Error::input(Code::BadOption, "a path on the command line is not UTF-8 text")
            .help("rename the file or folder: run.toml cannot store its name")
    })?;
    if let Value::Object(flags) = flags {
        fields.extend(flags.into_iter().filter(|(_, value)| !value.is_null()));
    }
    Ok(fields)
}

/// Reads a request from its fields.
pub(in crate::cli) fn read<R: DeserializeOwned>(fields: Fields) -> Result<R, Error> {
    serde_json::from_value(Value::Object(fields))
        .map_err(|why| malformed(Path::new("the command line"), &why.to_string()))
}

fn malformed(path: &Path, why: &str) -> Error {
    Error::input(Code::RequestUnreadable, format!("{}: {}", path.display(), why.trim_end()))
        .help("the fields are named like the long options, with `_` for `-`; the subcommand's --help lists them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Pair {
        a: Option<u32>,
        b: Option<u32>,
    }

    #[test]
    fn flags_win() {
        let Value::Object(fields) = json!({"a": 1, "b": 2}) else { panic!("an object") };
        let resolved: Pair = resolve(fields, &Pair { a: None, b: Some(3) }).unwrap();
        assert_eq!(resolved, Pair { a: Some(1), b: Some(3) });
    }
}
