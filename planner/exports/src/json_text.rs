//! JSON whose sections have each key once, as DeepSpeed demands.

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, Map, Value};
use std::fmt;

/// The value of a text.
///
/// # Errors
/// The text is no JSON, or a section has a key twice.
pub(crate) fn load(text: &str) -> Result<Value, serde_json::Error> {
    let mut reader = Deserializer::from_str(text);
    let value = Once.deserialize(&mut reader)?;
    reader.end().map(|()| value)
}

/// Reads a value of any kind.
struct Once;

impl<'de> DeserializeSeed<'de> for Once {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, is: bool) -> Result<Value, E> {
        Ok(is.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Once)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut section = Map::new();
        while let Some(key) = pairs.next_key::<String>()? {
            let value = pairs.next_value_seed(Once)?;
            if section.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} is there twice")));
            }
            section.insert(key, value);
        }
        Ok(Value::Object(section))
    }
}

#[cfg(test)]
mod tests {
    use super::load;

    #[test]
    fn a_key_is_there_once() {
        let text = r#"{"a": [1, -2, 0.5, null, true], "b": {"a": "x"}}"#;
        assert_eq!(load(text).unwrap(), serde_json::from_str::<serde_json::Value>(text).unwrap());
        let twice = load(r#"{"b": {"a": 1, "a": 2}}"#).unwrap_err().to_string();
        assert!(twice.contains("\"a\" is there twice") && twice.contains("line 1"), "{twice}");
        assert!(load("{} {}").is_err() && load("{").is_err());
    }
}
