//! `meshwright models --keys`: the treatment of each key of a `config.json`.

use super::TableFormat;
use crate::error::Error;
use ir::models::{Done, FAMILIES, KEYS, Key, ROPE};
use serde_json::{Map, Value, json};
use support::table::table;

/// Prints one line per key and default, or all keys by family as JSON.
pub(super) fn print(format: TableFormat) -> Result<String, Error> {
    match format {
        TableFormat::Table => {
            let rows: Vec<_> = KEYS.iter().flat_map(|key| key.names.iter().map(|name| row(name, key))).collect();
            Ok(table(["KEY", "FAMILIES", "DEFAULT", "EFFECT"], &rows))
        }
        TableFormat::Json => super::json(&by_family()),
    }
}

fn row(name: &str, key: &Key) -> [String; 4] {
    let done = match key.done {
        Done::Read => format!("read: {}", key.about),
        Done::Only => format!("any other value is refused: {}", key.about),
        Done::Nothing => format!("changes nothing: {}", key.about),
        Done::Alias(of) => format!("another name of {of}"),
    };
    let absent = if key.default.is_empty() { "-" } else { key.default };
    [name.to_string(), families(key), absent.to_string(), done]
}

/// Formats the families of a key.
fn families(key: &Key) -> String {
    let others: Vec<&str> =
        FAMILIES.iter().map(|family| family.name).filter(|name| !key.families.contains(name)).collect();
    match others.as_slice() {
        [] => "all".to_string(),
        [one] => format!("all but {one}"),
        [one, other] => format!("all but {one}, {other}"),
        _ => key.families.join(", "),
    }
}

fn by_family() -> Value {
    let names = FAMILIES.iter().map(|family| family.name).chain([ROPE]);
    let keys = |family: &str| -> Map<String, Value> {
        let rows = KEYS.iter().filter(|key| key.families.contains(&family));
        rows.flat_map(|key| key.names.iter().map(|name| ((*name).to_string(), described(key)))).collect()
    };
    names.map(|family| (family.to_string(), Value::Object(keys(family)))).collect::<Map<_, _>>().into()
}

fn described(key: &Key) -> Value {
    let (done, of) = match key.done {
        Done::Read => ("read", None),
        Done::Only => ("only", None),
        Done::Nothing => ("nothing", None),
        Done::Alias(of) => ("alias", Some(of)),
    };
    let mut described = json!({"done": done, "about": key.about});
    if let Some(absent) = key.absent() {
        described["default"] = absent;
    }
    if let Some(of) = of {
        described["of"] = of.into();
    }
    described
}
