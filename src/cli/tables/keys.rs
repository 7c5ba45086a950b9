//! `meshwright models --keys`: the treatment of each key of a `config.json`.

use crate::cli::TableFormat;
use crate::error::Error;
use ir::models::{Done, ENCODERS, FAMILIES, Key, Keys, ROPE};
use serde_json::{Map, Value, json};
use support::table::table;

/// A key that some families treat alike.
struct Treatment {
    name: &'static str,
    row: &'static Key,
    families: Vec<&'static str>,
}

/// Prints one line per key and treatment, or all keys by family as JSON.
pub(in crate::cli) fn print(format: TableFormat) -> Result<String, Error> {
    match format {
        TableFormat::Table => {
            let rows: Vec<_> = treatments().iter().map(line).collect();
            Ok(table(["KEY", "DEFAULT", "EFFECT", "FAMILIES"], &rows))
        }
        TableFormat::Json => crate::cli::json(&by_family()),
    }
}

/// The families and their keys, then those of rotary positions, and those of encoders and of the models that have them.
fn tables() -> impl Iterator<Item = (&'static str, Keys)> {
    let families = FAMILIES.iter().map(|family| (family.model_type, family.keys));
    let encoders = ENCODERS.iter().map(|encoder| (encoder.model_type, encoder.keys));
    let wholes = ENCODERS.iter().flat_map(|encoder| encoder.wholes).map(|whole| (whole.model_type, whole.keys));
    families.chain([("rope", ROPE)]).chain(encoders).chain(wholes)
}

/// All names of keys, those that all families have behind the others.
fn names() -> Vec<&'static str> {
    let own = tables().flat_map(|(_, keys)| &keys.lists[..keys.lists.len() - 1]);
    let common = tables().filter_map(|(_, keys)| keys.lists.last());
    let rows = own.chain(common).copied().flatten();
    let mut names: Vec<&str> = Vec::new();
    for name in rows.flat_map(|row| row.names) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names
}

/// All keys, by name.
fn treatments() -> Vec<Treatment> {
    let mut all: Vec<Treatment> = Vec::new();
    for name in names() {
        let first = all.len();
        for (family, row) in tables().filter_map(|(family, keys)| Some((family, keys.row(name)?))) {
            match all[first..].iter_mut().find(|known| known.row.is_like(row)) {
                Some(known) => known.families.push(family),
                None => all.push(Treatment { name, row, families: vec![family] }),
            }
        }
    }
    all
}

fn line(treatment: &Treatment) -> [String; 4] {
    let key = treatment.row;
    let done = match key.done {
        Done::Read => format!("read: {}", key.about),
        Done::Only => format!("any other value is refused: {}", key.about),
        Done::Nothing => format!("changes nothing: {}", key.about),
        Done::Alias(of) => format!("another name of {of}"),
    };
    let absent = if key.default.is_empty() { "-" } else { key.default };
    [treatment.name.to_string(), absent.to_string(), done, families(&treatment.families)]
}

/// Formats some families, or those that are left.
fn families(some: &[&str]) -> String {
    let others: Vec<&str> =
        FAMILIES.iter().map(|family| family.model_type).filter(|name| !some.contains(name)).collect();
    match others.as_slice() {
        [] => "all".to_string(),
        few if few.len() < some.len() => format!("all but {}", few.join(", ")),
        _ => some.join(", "),
    }
}

fn by_family() -> Value {
    let mut families = Map::new();
    for (family, keys) in tables() {
        let keys: Map<String, Value> = keys.rows().map(|(name, row)| (name.to_string(), described(row))).collect();
        families.insert(family.to_string(), keys.into());
    }
    families.into()
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
