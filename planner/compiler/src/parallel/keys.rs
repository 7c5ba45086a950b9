//! The text form of a configuration's keys. Parser, printer, help, JSON schema and comparisons are made from it.

use super::ParallelError;
use ir::config_key::ConfigKey;
use ir::options::{CpKind, Gather, ParallelConfig};
use serde_json::{Value as Json, json};
use std::fmt::Display;
use std::str::FromStr;

/// The text form of a key.
pub struct KeyText {
    /// Its effect, in one line.
    pub about: &'static str,
    /// True if its value is a list, whose items commas separate.
    pub is_list: bool,
    /// True if the printed form has it.
    pub is_printed: fn(&ParallelConfig) -> bool,
    /// Reads its value.
    pub read: fn(&mut ParallelConfig, &[&str]) -> Result<(), ParallelError>,
    /// Its value as text; a word where the schedule or the stack decides it.
    pub text: fn(&ParallelConfig) -> String,
    /// The JSON schema of its field, without the description.
    pub json: fn() -> Json,
}

/// A row: a key of one value.
macro_rules! key {
    ($field:ident, $about:literal, printed: $printed:expr, read: $read:expr, text: $text:expr, json: $json:expr) => {
        KeyText {
            about: $about,
            is_list: false,
            is_printed: $printed,
            read: |config, values| {
                config.$field = $read(stringify!($field), values[0])?;
                Ok(())
            },
            text: |config| $text(&config.$field),
            json: || $json,
        }
    };
    // A number that is always printed.
    ($field:ident, $about:literal, always) => {
        key!($field, $about, printed: |_| true, read: value, text: ToString::to_string,
             json: of(|config| &config.$field))
    };
    // A number that is printed if it is above 1.
    ($field:ident, $about:literal, above_one) => {
        key!($field, $about, printed: |config| config.$field > 1, read: value, text: ToString::to_string,
             json: of(|config| &config.$field))
    };
    // A value that may be left to something else, which has a word.
    ($field:ident, $about:literal, else $word:literal) => {
        key!($field, $about, printed: |config| config.$field.is_some(), read: |key, text| some($word, key, text),
             text: |value| or($word, value), json: or_null(|config| &config.$field))
    };
    // A value that is printed if it is not the default.
    ($field:ident, $about:literal, changed: $read:expr, json: $json:expr) => {
        key!($field, $about, printed: |config| config.$field != ParallelConfig::default().$field, read: $read,
             text: ToString::to_string, json: $json)
    };
}

/// A row: a key whose value is a list. An empty one has a word.
macro_rules! list {
    ($field:ident, $about:literal, printed: $printed:expr, items: $items:expr, else $word:literal) => {
        KeyText {
            about: $about,
            is_list: true,
            is_printed: $printed,
            read: |config, values| {
                let values = if *values == [$word] { &[] } else { values };
                config.$field = values.iter().map(|item| value(stringify!($field), item)).collect::<Result<_, _>>()?;
                Ok(())
            },
            text: |config| match config.$field.is_empty() {
                true => $word.to_string(),
                false => config.$field.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            },
            json: || json!({ "type": "array", "items": $items }),
        }
    };
}

/// The text form of a key.
pub fn key_text(key: ConfigKey) -> KeyText {
    match key {
        ConfigKey::Dp => key!(dp, "data parallelism: ranks with different sequences", always),
        ConfigKey::Tp => key!(tp, "tensor parallelism: ranks that share each layer", always),
        ConfigKey::Pp => key!(pp, "pipeline parallelism: ranks with different layers", always),
        ConfigKey::Cp => key!(cp, "context parallelism: ranks that share each sequence", above_one),
        ConfigKey::Ep => key!(ep, "expert parallelism: ranks of tp, cp and dp with different experts", above_one),
        ConfigKey::Etp => key!(etp, "tensor parallelism of experts: ranks that share each expert", above_one),
        ConfigKey::Sp => {
            key!(sp, "sequence parallelism: shard the residual stream over tp; true or false", printed: |_| true, read: truth,
         text: ToString::to_string, json: bool::json())
        }
        ConfigKey::Zero => {
            key!(zero, "ZeRO stage: 0, 1 (shard optimizer states), 2 (and gradients), 3 (and parameters)", printed: |_| true,
         read: value, text: ToString::to_string, json: json!({ "type": "integer", "minimum": 0, "maximum": 3 }))
        }
        ConfigKey::Mbs => key!(mbs, "sequences per micro-batch and data-parallel rank", always),
        ConfigKey::Schedule => {
            key!(schedule, "pipeline schedule: see `meshwright schedules`", printed: |_| true, read: value, text: Clone::clone,
         json: String::json())
        }
        ConfigKey::RankOrder => list!(rank_order, "axes of the ranks, outermost first: pp,dp,cp,tp", printed: |_| true,
          items: json!({ "enum": ["pp", "dp", "cp", "tp"] }), else "none"),
        ConfigKey::Vp => key!(vp, "stages per pipeline rank", else "1"),
        ConfigKey::Group => {
            key!(group, "micro-batches that go through one stage of a rank before its next stage", else "default")
        }
        ConfigKey::Slices => key!(slices, "slices of each sequence, for schedules that have them", else "default"),
        ConfigKey::CpKind => key!(cp_kind, "exchange of keys and values under cp: allgather, ring or ulysses",
         printed: |config| config.cp_kind != CpKind::default(), read: |key, text| one_of(&CpKind::ALL, key, text), text: |kind: &CpKind| kind.name().to_string(),
         json: json!({ "enum": CpKind::ALL.map(|(name, _)| name) })),
        ConfigKey::Shard => key!(shard, "ranks in a ZeRO group", else "all"),
        ConfigKey::Gather => {
            key!(gather, "how often ZeRO-3 gathers parameters: at each use, or once a step; use or step",
         printed: |config| config.gather != Gather::default(), read: |key, text| one_of(&Gather::ALL, key, text),
         text: |gather: &Gather| gather.name().to_string(), json: json!({ "enum": Gather::ALL.map(|(name, _)| name) }))
        }
        ConfigKey::Recompute => {
            key!(recompute, "recomputed values: none, full, full:N, selective, selective:NAME+NAME or auto",
         changed: choice,
         json: String::json())
        }
        ConfigKey::Offload => {
            key!(offload, "saved activations in host memory: none, all, all:N (of the first N layers of each stage) or auto",
         changed: choice,
         json: String::json())
        }
        ConfigKey::OffloadOptimizer => {
            key!(offload_optimizer, "optimizer states in host memory between updates; true or false",
         printed: |config| config.offload_optimizer, read: truth, text: ToString::to_string, json: bool::json())
        }
        ConfigKey::TpOverlap => {
            key!(tp_overlap, "tensor-parallel communication overlaps matmuls; true or false", else "default")
        }
        ConfigKey::DpOverlap => {
            key!(dp_overlap, "data-parallel communication overlaps the backward; true or false", else "default")
        }
        ConfigKey::Stages => {
            list!(stages, "the first block of each stage but the first; `even` divides the work evenly",
          printed: |config| !config.stages.is_empty(), items: json!({ "type": "integer", "minimum": 0 }), else "even")
        }
    }
}

/// The JSON schema of a configuration as reports hold it: an object with every key.
pub fn json_schema() -> Json {
    json!({
        "type": "object",
        "required": ConfigKey::ALL.map(ConfigKey::name),
        "additionalProperties": false,
        "properties": ConfigKey::ALL.into_iter().map(described).collect::<serde_json::Map<_, _>>(),
    })
}

/// The name of a key and the schema of its field.
fn described(key: ConfigKey) -> (String, Json) {
    let row = key_text(key);
    let mut field = (row.json)();
    field["description"] = json!(row.about);
    (key.to_string(), field)
}

/// A value that a configuration may have.
trait Value: FromStr {
    /// Requirement on its text.
    const MUST: &'static str;

    /// The JSON schema of its field.
    fn json() -> Json;
}

impl Value for u64 {
    const MUST: &'static str = "is not a whole number in its range";

    fn json() -> Json {
        json!({ "type": "integer", "minimum": 1 })
    }
}

impl Value for u32 {
    const MUST: &'static str = u64::MUST;

    fn json() -> Json {
        u64::json()
    }
}

impl Value for u8 {
    const MUST: &'static str = u64::MUST;

    fn json() -> Json {
        u64::json()
    }
}

impl Value for bool {
    const MUST: &'static str = "must be true or false";

    fn json() -> Json {
        json!({ "type": "boolean" })
    }
}

impl Value for String {
    const MUST: &'static str = "is no name";

    fn json() -> Json {
        json!({ "type": "string" })
    }
}

/// The schema of a field that has a value.
fn of<T: Value>(_: fn(&ParallelConfig) -> &T) -> Json {
    T::json()
}

/// The schema of a field that may be left to the schedule or the stack.
fn or_null<T: Value>(_: fn(&ParallelConfig) -> &Option<T>) -> Json {
    let mut schema = T::json();
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

fn value<T: Value>(key: &str, text: &str) -> Result<T, ParallelError> {
    text.parse().map_err(|_| ParallelError::Value { key: key.to_string(), value: text.to_string(), must: T::MUST })
}

fn choice<T: FromStr<Err: Display>>(key: &str, text: &str) -> Result<T, ParallelError> {
    text.parse().map_err(|why: T::Err| ParallelError::Choice { key: key.to_string(), why: why.to_string() })
}

fn truth(key: &str, text: &str) -> Result<bool, ParallelError> {
    value(key, text)
}

/// A value, or what a word leaves it to. The word `1` is a value too.
fn some<T: Value>(word: &str, key: &str, text: &str) -> Result<Option<T>, ParallelError> {
    if text == word && word != "1" { Ok(None) } else { value(key, text).map(Some) }
}

fn or<T: Display>(word: &str, value: &Option<T>) -> String {
    value.as_ref().map_or_else(|| word.to_string(), ToString::to_string)
}

/// The value of one of these names.
fn one_of<T: Copy>(all: &[(&str, T)], key: &str, text: &str) -> Result<T, ParallelError> {
    all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names = all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        ParallelError::NotOneOf { key: key.to_string(), value: text.to_string(), names }
    })
}
