//! Check of the JSON schema (2020-12) keywords that plans use: type, const, enum, bounds, properties, items, anyOf, $ref.

use serde_json::Value;

/// Violations of the schema by a value; empty if valid.
pub(crate) fn complaints(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, schema, value, "", &mut found);
    found
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let known = ["$schema", "$id", "$defs", "title", "description"];
    for (key, of) in schema.as_object().expect("a schema is an object") {
        let holds = match key.as_str() {
            key if known.contains(&key) => true,
            "$ref" => {
                let place = of.as_str().and_then(|place| place.strip_prefix('#')).expect("a place in the schema");
                check(root, root.pointer(place).expect("a definition"), value, at, found);
                true
            }
            "anyOf" => of.as_array().expect("a list").iter().any(|one| {
                let mut complaints = Vec::new();
                check(root, one, value, at, &mut complaints);
                complaints.is_empty()
            }),
            "type" => match of {
                Value::Array(types) => types.iter().any(|one| is_a(one, value)),
                one => is_a(one, value),
            },
            "const" => of == value,
            "enum" => of.as_array().expect("a list").contains(value),
            "minimum" => value.as_f64().is_none_or(|number| number >= of.as_f64().expect("a number")),
            "maximum" => value.as_f64().is_none_or(|number| number <= of.as_f64().expect("a number")),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= of.as_u64().expect("a count")),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= of.as_u64().expect("a count")),
            "required" => of.as_array().expect("a list").iter().all(|name| value.get(name.as_str().unwrap()).is_some()),
            "additionalProperties" => {
                assert_eq!(of, &Value::Bool(false), "nothing else is checked here");
                let keys = value.as_object().into_iter().flat_map(|fields| fields.keys());
                keys.into_iter().all(|key| schema["properties"].get(key).is_some())
            }
            "properties" => {
                for (name, one) in of.as_object().expect("an object") {
                    if let Some(field) = value.get(name) {
                        check(root, one, field, &format!("{at}/{name}"), found);
                    }
                }
                true
            }
            "items" => {
                for (place, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, of, item, &format!("{at}/{place}"), found);
                }
                true
            }
            other => panic!("`{other}` is not checked here"),
        };
        if !holds {
            found.push(format!("{at}: {key} {of}"));
        }
    }
}

fn is_a(kind: &Value, value: &Value) -> bool {
    match kind.as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.as_u64().is_some() || value.as_i64().is_some(),
        other => panic!("`{other}` is no type"),
    }
}
